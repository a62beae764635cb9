"""A table is dropped and made again at the same place, while a process of the former table sleeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lancewal_core.errors import LancewalError, TableMissing, TableReplaced
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.table.contract import newest_contract, put_next
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from tests.simulation.checker import require
from tests.simulation.services import flusher_context
from tests.simulation.stage import ALWAYS, Member, Stage
from tests.simulation.world import Process


def _made_again(former: Stage, *sleepers: Process) -> tuple[Stage, Member]:
    """The table that is made at the place of ``former``, with a member; what ``sleepers`` do from now on happens there.

    The topic is the same, so that nothing but the making tells the one table from the other."""
    stage = Stage(making="making-2")
    for process in sleepers:
        process.store.bucket, process.table.dataset = stage.bucket, stage.dataset
    require(stage.region(0) == former.region(0), "regions:", stage.region(0))
    member = stage.member("b", 0, 1)
    stage.append_and_seal(member, 0)
    return stage, member


def former_owner_swaps_its_page() -> None:
    """A sleeps between a look at a page and the put of the next version, the number of which is above all of the new table."""
    former = Stage()
    a = former.member("a", 0, 1)
    for _ in range(4):
        former.append_and_seal(a, 0)
    former.append(a, 0)
    made: list[tuple[Stage, Member]] = []
    a.script.before("put", "/pages/", lambda: made.append(_made_again(former, a.process)))
    a.worker._sealing.policy = ALWAYS
    a.worker._sealing.advance(a.worker._writer)
    ((stage, b),) = made
    stage.check()
    stage.append_and_seal(b, 0)
    stage.round(stage.flusher("f"))
    stage.check()


def former_flusher_records_its_merge() -> None:
    """A flusher sleeps between its commit and the merge's record.  The new table merges up to the same version later."""
    former = Stage()
    a, process = former.member("a", 0, 1), former.process("f")
    f = flusher_context(former, process)
    former.append_and_seal(a, 0, 1)
    former.append_and_seal(a, 0)
    made: list[tuple[Stage, Member]] = []
    record = paths.merge_record(TableVersion(2), former.contract.making)
    former.scripts["f"].before("put", record, lambda: made.append(_made_again(former, process)))
    with suppress(LancewalError):  # once awake, it finds a table that is not its own
        former.round(f)
    ((stage, b),) = made
    g = stage.flusher("g")
    for _ in range(3):
        stage.round(g)
        stage.check_table()
        stage.append_and_seal(b, 1)
    stage.check()


def former_contract_is_altered() -> None:
    """``lancewal table alter`` sleeps before it puts the next version of the contract."""
    former = Stage()
    process = former.process("alter")
    old, made = former.contract, list[tuple[Stage, Member]]()
    former.faults_of("alter").before("put", "/contract/", lambda: made.append(_made_again(former, process)))
    put_next(process.store, process.clock, old, old.model_copy(update={"version": 2, "on_misrouted": "ignore"}))
    ((stage, _),) = made
    found = newest_contract(stage.process("audience").store)
    require(found == stage.contract, "the contract is", found)


def former_collector_lists_the_new_table() -> None:
    """A collector sleeps before it lists; what it then sees of logs is the new table's, of which it knows no index."""
    former = Stage()
    a, process = former.member("a", 0, 1), former.process("f")
    f = flusher_context(former, process)
    former.append_and_seal(a, 0)
    former.round(f)
    made: list[tuple[Stage, Member]] = []
    former.scripts["f"].before("list", paths.WAL, lambda: made.append(_made_again(former, process)))
    state = GarbageState()
    with suppress(TableMissing, TableReplaced):
        collect_garbage(f, state)
    ((stage, b),) = made
    stage.append(b, 1)
    for _ in range(2):
        former.scheduler.now += former.settings.grace_s + 1
        with suppress(TableMissing, TableReplaced):
            collect_garbage(f, state)
    stage.check()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    former_owner_swaps_its_page: ("keys have no making", "is missing: a generation begins in segment"),
    former_flusher_records_its_merge: ("keys have no making", "its log does not show all of them"),
    former_contract_is_altered: ("keys have no making", "the contract is"),
    former_collector_lists_the_new_table: ("a dropped table is not noticed", "deleted, though needed"),
}
