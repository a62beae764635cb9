"""Keys through two partitions are set aside, and a person decides: against dicts, over random histories and by hand."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.restored import Choice, plan_restored, repair_restored
from lancewal_audit.repair.watermark import accept_watermark, plan_watermark
from lancewal_core.errors import (
    Corrupt,
    InvalidInput,
    LancewalError,
    ObjectCorrupt,
    ObjectMissing,
    RegionConflict,
    VersionGone,
)
from lancewal_core.keys.conflicts import Conflicts, decode_conflicts, encode_conflicts, read_conflicts
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region, TableVersion, TopicId
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_store import Done, put_once
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.contract import Contract, encode_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.watermarks import Watermarks
from lancewal_flusher import context as context_module
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.flushes import KnownFlushes
from lancewal_flusher.garbage.kinds import orphans
from lancewal_flusher.merge import set_aside as set_aside_module
from lancewal_flusher.merge import settle as settle_module
from lancewal_flusher.merge.changes import run_tasks
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import Merged, NothingToMerge, merge_next
from lancewal_flusher.merge.plan import MergeLimits, RegionMerge
from lancewal_flusher.merge.region_input import RegionInput, read_region_inputs
from lancewal_flusher.merge.settle import settle
from lancewal_flusher.upkeep.compaction import FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.key_runs import UpkeepState, keep_up
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.spark.source import pin_read
from lancewal_reader.spark.task import BaseTask, DeltaTask, Task, run_task
from lancewal_reader.table import open_table
from lancewal_reader.unmerged.left_out import left_out_of
from lancewal_tables.commands.conflict import app
from lancewal_tables.commands.status import status_text
from lancewal_tables.load.files import find_files
from lancewal_tables.load.whole import LoadAsked, load
from lancewal_tables.status.status import table_status
from tests.support.conflict_model import ConflictModel
from tests.support.flusher_tables import (
    COMBINE,
    OPEN_ROWS,
    FlusherTable,
    Operation,
    Row,
    ScriptedTable,
    delete,
    patch,
    upsert,
    upserts,
)

PARTITIONS = 3


class Conflicted:
    """A table and its model; every record is of a key of ``r0``, through whatever partition."""

    def __init__(self, folder: Path, **contract: Any) -> None:
        self.table = FlusherTable(folder, partitions=PARTITIONS, keyed_by_bytes=True, **contract)
        self.model = ConflictModel()
        self.sent: dict[tuple[int, int], Sequence[Operation]] = {}
        self.merged: set[tuple[int, int]] = set()
        self.numbers: dict[int, Iterator[int]] = {p: itertools.count(1) for p in range(PARTITIONS)}

    def send(self, partition: int, *operations: Operation) -> None:
        self.table.generation(partition, operations, of=0)
        self.sent[partition, next(self.numbers[partition])] = operations

    def send_together(self, operations: Mapping[int, Sequence[Operation]]) -> None:
        """Flushed as parts of one flush."""
        for partition, some in operations.items():
            self.table.generation(partition, some, flush=False, of=0)
            self.sent[partition, next(self.numbers[partition])] = some
        self.table.flush_together(*operations)

    def merge(self, limits: MergeLimits = OPEN_ROWS, table: LanceTable | None = None, finish: bool = True) -> Any:
        """One merge; what the model must know of it is which generations it took."""
        context = self.table.context(table)
        finish_newest(context)
        done = merge_next(context, limits)
        if isinstance(done, Merged):
            self.merged |= {(r.partition, int(g)) for r, generations in done.generations.items() for g in generations}
            self.model.merge(
                {
                    region.partition: [o for g in generations for o in self.sent[region.partition, g]]
                    for region, generations in done.generations.items()
                }
            )
            if finish:
                finish_newest(context)
        return done

    def merge_all(self, limits: MergeLimits = OPEN_ROWS) -> None:
        while isinstance(self.merge(limits), Merged):
            pass
        self.check()

    def settle(self, partition: int, ids: Sequence[int], table: LanceTable | None = None) -> None:
        context = self.table.context(table)
        settle(context, self.table.regions[partition], lambda _: self.keys(ids))
        self.model.settle(partition, ids)

    def keys(self, ids: Sequence[int]) -> pa.Table:
        return pa.Table.from_pylist([{"region": "r0", "id": id} for id in ids], self.table.contract.rows.key)

    def in_force(self) -> Conflicts:
        """As a process that has just started reads it."""
        watermarks = Watermarks(self.table.store, LanceTable(self.table.uri), None)
        return read_conflicts(self.table.store, watermarks.newest()[1].conflicts, self.table.contract)

    def check(self) -> None:
        """The table, and the object in force, are what the model says; every record is in one of them."""
        self.table.model = {("r0", id): {"region": "r0", "id": id, **row} for id, row in self.model.rows().items()}
        self.table.check()
        held = self.in_force()
        waits = {(row["id"], partition_of(row)): folded_of(row, self.table) for row in held.waiting.to_pylist()}
        assert waits == self.model.waits()
        assert {row["id"]: partition_of(row) for row in held.owners.to_pylist()} == self.model.owners()

    def check_reads(self) -> None:
        """A strong read, and the tasks of a Spark job, are what the model says, and so is what they say that they left out."""
        unmerged: dict[int, list[Operation]] = {}
        for place, operations in self.sent.items():
            if place not in self.merged:
                unmerged.setdefault(place[0], []).extend(operations)
        rows, left_out = self.model.strong(unmerged)
        wanted = {id: {"region": "r0", "id": id, **row} for id, row in rows.items()}
        read = open_table(self.table.uri).to_arrow()
        assert {row["id"]: row for row in read.to_pylist()} == wanted
        assert len(wanted) == read.num_rows
        waiting = {id for id, _ in self.model.waits()}
        said = left_out_of(read.schema)
        assert (said.waiting, said.unmerged) == (len(waiting), left_out)
        assert receipt_of(read.schema).left_out == left_out
        pinned = pin_read({"table": self.table.uri})
        plan, names = pinned.pinned_plan, read.schema.names
        places = range(len(plan.plan.deltas))
        tasks: list[Task] = [
            BaseTask(tuple(f.fragment_id for f in pinned.fragments)),
            *(DeltaTask((place,)) for place in places),
        ]
        found = [row for task in tasks for batch in run_task(plan, task, names, None) for row in batch.to_pylist()]
        assert sorted(found, key=lambda row: row["id"]) == [wanted[id] for id in sorted(wanted)]

    def close(self) -> None:
        self.table.close()


def partition_of(row: Mapping[str, Any]) -> int:
    return int(row["_region"].rpartition("/")[2])


def folded_of(row: Mapping[str, Any], table: FlusherTable) -> tuple[str, Row | None]:
    values = {name: row[name] for name in ("a", "s", "tags")}
    match row["_op"]:
        case Op.UPSERT:
            return "row", values
        case Op.DELETE:
            return "gone", None
    bits = int.from_bytes(row["_present"], "little")
    names = table.contract.rows.table.names
    return "patch", {name: value for name, value in values.items() if bits >> names.index(name) & 1}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Conflicted]:
    made = Conflicted(tmp_path)
    yield made
    made.close()


def one_of(rng: random.Random, id: int, deletes: bool) -> Operation:
    found = [upsert(id, a=rng.randrange(99)), patch(id, a=rng.randrange(99)), patch(id, s=f"s{rng.randrange(99)}")]
    return rng.choice([*found, delete(id)] if deletes else found)


@pytest.mark.in_turns("compacting", "seed", each=2)
@pytest.mark.parametrize("compacting", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_any_history(world: Conflicted, seed: int, compacting: bool) -> None:
    """Merges, decisions and crashes.  Where there are compactions there are no deletes: a key that was free for a while and is
    brought by another region is one of which nothing tells the region then."""
    rng = random.Random(f"{seed} {compacting}")
    for _ in range(22):
        sent: dict[int, list[Operation]] = {}
        for _ in range(rng.randrange(4)):
            ids = sorted(rng.sample(range(8), rng.randrange(1, 4)))
            sent[rng.randrange(PARTITIONS)] = [one_of(rng, id, not compacting) for id in ids]
        if rng.random() < 0.5 and sent:
            world.send_together(sent)
        else:
            for partition, some in sent.items():
                world.send(partition, *some)
        scripted = ScriptedTable(world.table.uri)
        match rng.randrange(6):
            case 0 | 1:
                world.merge(rng.choice([OPEN_ROWS, COMBINE]), finish=rng.random() < 0.7)
            case 2:
                scripted.lose_request = 1
                assert not isinstance(world.merge(table=scripted), Merged)
            case 3:
                if rng.random() < 0.5:
                    scripted.before = [world.merge]  # another flusher is faster
                decide(world, rng, scripted)
            case 4:
                keep_up(world.table.context(), UpkeepState())
            case _ if compacting:
                finish_newest(world.table.context())
                keep_up(world.table.context(), UpkeepState())
                compact_next(
                    world.table.context(), CompactionLimits(target_rows=1_000).to_the_end(), FileSizes(),
                    with_sentinel=True,
                )  # fmt: skip
                keep_up(world.table.context(), UpkeepState())  # else nothing tells whose rows these are
        world.check()
        if rng.random() < 0.4:
            world.check_reads()
    world.merge_all()
    world.check_reads()
    assert world.model.waits(), "the history had no conflict"
    for id, key in world.model.keys.items():
        if key.waiting:
            world.settle(rng.choice(sorted(key.waiting)), [id])
    world.check()
    assert not world.model.waits()


def decide(world: Conflicted, rng: random.Random, table: LanceTable) -> None:
    waiting = {id: key for id, key in world.model.keys.items() if key.waiting}
    if not waiting:
        return
    says = {p for key in waiting.values() for p in [*key.waiting, *([] if key.owner is None else [key.owner])]}
    partition = rng.choice(sorted(says))
    ids = [id for id, key in waiting.items() if partition in key.waiting or partition == key.owner]
    world.settle(partition, rng.sample(ids, rng.randrange(1, len(ids) + 1)), table)


def test_one_key_holds_up_none_of_a_generation_that_is_adopted(world: Conflicted) -> None:
    world.send(0, upsert(7, a=1))
    world.merge_all()
    world.send(1, *upserts(range(40), a=2), delete(50), patch(51, a=3))
    done = world.merge()
    assert (done.set_aside, done.set_aside_of, done.rows_adopted, done.rows_written) == (1, (1,), 0, 40)
    world.check()
    world.send(1, patch(7, s="later"), upsert(8, a=4))
    world.send(0, patch(7, a=5))
    world.merge_all()
    assert world.model.rows()[7] == {"a": 5, "s": None, "tags": None}


def test_one_key_holds_up_none_of_a_flush_of_several_regions(world: Conflicted) -> None:
    world.send(0, upsert(7, a=1))
    world.merge_all()
    # Its file is not adopted, and the rows of both regions are written anew.
    world.send_together({1: [*upserts(range(40), a=2), delete(50), patch(51, a=3)], 2: upserts(range(100, 105))})
    done = world.merge()
    assert (done.set_aside, done.set_aside_of, done.rows_adopted, done.rows_written) == (1, (1,), 0, 45)
    world.check()
    # What is no row of a file leaves it as it is.
    world.send_together({1: [patch(7, s="later"), *upserts(range(200, 203))], 2: upserts(range(300, 302))})
    done = world.merge()
    assert (done.set_aside, done.rows_adopted, done.rows_written) == (1, 5, 0)
    world.check()
    # Through which region a row of it came is known.
    world.send_together({1: [upsert(300, a=4), upsert(202, a=4)], 2: [upsert(202, a=5), delete(200), upsert(301, a=5)]})
    done = world.merge()
    assert (done.set_aside, done.set_aside_of) == (3, (1, 2))
    world.check()


def test_two_regions_of_a_flush_have_the_same_new_key(world: Conflicted) -> None:
    world.send_together({0: [upsert(1), upsert(2)], 1: [upsert(2), upsert(3)]})
    done = world.merge()
    assert (done.set_aside, done.set_aside_of, done.rows_adopted, done.rows_written) == (1, (0, 1), 0, 2)
    world.check()
    world.settle(1, [2])
    world.check()


def test_what_is_found_damaged_while_it_is_set_aside_is_left(
    world: Conflicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(
        context: FlusherContext, merges: Sequence[RegionMerge], together: Collection[Region]
    ) -> list[RegionInput | Corrupt]:
        found = read_region_inputs(context, merges, together)
        return [
            ObjectCorrupt("its rows") if merge.region.partition == 2 else f
            for merge, f in zip(merges, found, strict=True)
        ]

    world.send(0, upsert(7, a=1))
    world.merge_all()
    world.send_together({1: [upsert(7, a=2), upsert(8)], 2: [upsert(9), upsert(10)]})
    with monkeypatch.context() as patched:
        patched.setattr(set_aside_module, "read_region_inputs", damaged)
        done = world.merge()
    assert ([r.partition for r in done.left], done.rows_adopted, done.rows_written) == ([2], 0, 1)
    world.check()
    done = world.merge()
    assert (done.rows_adopted, done.rows_written) == (0, 2)
    world.check()


def test_an_attempt_that_is_lost_leaves_nothing_behind_but_an_object(world: Conflicted) -> None:
    two_wait(world)
    world.send(2, upsert(9))
    scripted = ScriptedTable(world.table.uri)
    scripted.lose_request = 1
    world.merge(table=scripted)
    assert len(objects(world)) == 1
    assert not world.in_force()
    done = world.merge()
    assert (done.set_aside, done.set_aside_of) == (1, (0, 1))
    world.check()
    assert len(objects(world)) == 2


def two_wait(world: Conflicted) -> None:
    """Key 3 waits through two partitions."""
    world.send(0, upsert(3, a=1))
    world.send(1, upsert(3, a=2), upsert(4, a=2))


def objects(world: Conflicted) -> set[str]:
    return {info.key for info in world.table.store.list(paths.CONFLICTS)}


def test_more_keys_than_there_is_room_for_hold_their_partitions_alone(world: Conflicted) -> None:
    few = replace(OPEN_ROWS, conflict_keys_max=3)
    world.send(0, *upserts(range(9)))
    world.merge_all(few)
    world.send(1, *upserts(range(3), a=1))
    world.merge_all(few)
    version = world.table.dataset.version
    world.send(1, *upserts(range(4), a=2))
    ((region, error),) = world.merge(few).left.items()
    assert region == world.table.regions[1]
    assert "partitions 0 and 1" in str(error)
    assert "`lancewal conflict list`" in str(error)
    assert (error.where["keys"], world.table.dataset.version) == (4, version)
    world.send(2, *upserts(range(4, 8), a=3))
    left = world.merge(few).left
    assert set(left) == {world.table.regions[1], world.table.regions[2]}
    assert any("copy the table's rows" in str(error) for error in left.values())
    assert world.table.dataset.version == version
    world.send(0, upsert(8, a=5), upsert(9, a=5))
    world.merge_all(few)
    assert {row["id"]: row["a"] for row in world.table.rows()}[9] == 5
    world.settle(0, [0, 1, 2])
    world.merge_all(replace(few, conflict_keys_max=9))


@pytest.mark.parametrize("together", [False, True])
def test_the_partition_with_most_keys_is_held_first(world: Conflicted, together: bool) -> None:
    """Also where its rows lie in files that others adopt."""
    world.send(0, *upserts(range(9)))
    world.merge_all()
    operations = {1: [*upserts(range(5), a=1), upsert(21, a=1)], 2: [upsert(8, a=2), upsert(22, a=2)]}
    if together:
        world.send_together(operations)
    else:
        for partition, some in operations.items():
            world.send(partition, *some)
    few = replace(OPEN_ROWS, adopt_rows=1, conflict_keys_max=4)
    done = world.merge(few)
    assert set(done.left) == {world.table.regions[1]}
    assert done.set_aside_of == (2,)
    world.check()
    assert {row["id"] for row in world.table.rows()} == {*range(9), 22}
    world.merge_all(replace(few, conflict_keys_max=6))


@pytest.mark.parametrize("bound", ["keys", "bytes"])
def test_a_share_larger_than_all_room_comes_in_generations(
    world: Conflicted, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One merge would combine them, and no decision makes room for that."""
    few = replace(COMBINE, conflict_keys_max=4)
    if bound == "bytes":
        few = COMBINE
        monkeypatch.setattr("lancewal_flusher.merge.set_aside.encode_conflicts", at_most_four_wait)
    world.send(0, *upserts(range(9)))
    world.merge_all(few)
    for ids in (range(3), range(3, 6), range(6, 9)):
        world.send(1, *upserts(ids, a=1))
    for ids in (range(3), range(3, 6), range(6, 9)):
        world.merge_all(few)
        assert [row["id"] for row in world.in_force().waiting.to_pylist()] == list(ids)
        world.settle(1, ids)
    world.check()
    assert {row["a"] for row in world.table.rows()} == {1}


def at_most_four_wait(conflicts: Conflicts, merge: str) -> tuple[bytes, ConflictsRef]:
    """``encode_conflicts`` where an object has little room."""
    if conflicts.waiting.num_rows > 4:
        raise ObjectCorrupt("too large")
    return encode_conflicts(conflicts, merge)


def test_owners_that_a_decision_adds_take_no_more_room(world: Conflicted, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a person always gets out, in turns: an object that is full takes every decision."""
    for round_ in range(3):
        ids = range(20 * round_, 20 * round_ + 20)
        world.send(0, *upserts(ids, a=1))
        world.send(1, *upserts(ids, a=2))
        world.merge_all()
        held = world.in_force()
        raw = sum(part.nbytes for part in (held.waiting, held.owners))
        world.settle(1, ids)
        held = world.in_force()
        assert sum(part.nbytes for part in (held.waiting, held.owners)) < raw
        assert held.owners.num_rows == 20 * (round_ + 1)
    world.check()


def test_the_partitions_of_too_many_keys_are_named_in_the_commit(
    world: Conflicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with the most keys, until the others have few; a decision takes the name away."""
    monkeypatch.setattr("lancewal_core.keys.conflicts.KEYS_FEW", 3)

    def stopped() -> tuple[int, ...]:
        ref = Watermarks(world.table.store, LanceTable(world.table.uri), None).newest()[1].conflicts
        assert ref is not None
        return tuple(region.partition for region in ref.stopped)

    world.send(0, *upserts(range(9)))
    world.merge_all()
    world.send(1, *upserts(range(3), a=1))
    world.merge_all()
    assert stopped() == ()
    world.send(2, upsert(8, a=1))
    world.merge_all()
    assert stopped() == (1,)
    world.send(2, *upserts(range(4, 8), a=1))
    world.merge_all()
    assert stopped() == (2,)
    world.send(1, *upserts(range(5), a=1))
    world.merge_all()
    assert stopped() == (1, 2)
    said = [found.diagnosis.kind for found in table_status(Settings(), world.table.uri).partitions]
    assert [kind == RegionConflict.kind for kind in said] == [False, True, True]
    world.settle(0, [4, 5, 6, 7, 8])
    assert stopped() == (1,)
    world.settle(1, [0, 1, 2, 3])
    assert stopped() == ()
    world.check()


def test_rows_that_users_append_meanwhile(world: Conflicted) -> None:
    """Of a key that is set aside nothing of Kafka's came, so theirs stays; of one that is decided Kafka's row wins."""
    world.send(2, upsert(9))
    world.merge_all()
    two_wait(world)
    scripted = ScriptedTable(world.table.uri)
    scripted.before = [lambda: world.table.user_append(0, [3], in_model=False)]
    world.merge(table=scripted)
    assert [row["s"] for row in world.table.rows() if row["id"] == 3] == ["user"]
    scripted = ScriptedTable(world.table.uri)
    scripted.before = [lambda: world.table.user_append(0, [3], in_model=False)]
    world.settle(1, [3], scripted)
    world.check()


@pytest.mark.parametrize("harm", ["lost", "changed"])
def test_without_the_object_nothing_is_merged(world: Conflicted, harm: str) -> None:
    two_wait(world)
    world.merge_all()
    (key,) = objects(world)
    data = world.table.take_away(paths.CONFLICTS)[key]
    if harm == "changed":
        held = decode_conflicts(data, key, world.table.contract.rows)
        a = held.waiting.schema.get_field_index("a")
        rows = held.waiting.set_column(a, held.waiting.schema.field(a), pc.add(held.waiting["a"], 1))
        other = encode_conflicts(replace(held, waiting=rows), "0badcafe")[0]
        assert len(other) == len(data)
        world.table.put_back({key: other})
    world.send(2, upsert(9))
    with pytest.raises(ObjectMissing if harm == "lost" else ObjectCorrupt, match=key):
        merge_next(world.table.context(), OPEN_ROWS)
    assert any(key in problem for problem in table_status(Settings(), world.table.uri).problems)


def test_a_process_reads_the_object_once_while_it_stays_in_force(
    world: Conflicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_wait(world)
    world.merge_all()
    read: list[object] = []

    def counted(store: Any, ref: Any, contract: Contract) -> Conflicts:
        read.append(ref)
        return read_conflicts(store, ref, contract)

    monkeypatch.setattr(context_module, "read_conflicts", counted)
    context = world.table.context()
    for id in (9, 10, 11):
        world.send(2, upsert(id))
        assert isinstance(merge_next(context, OPEN_ROWS), Merged)
        finish_newest(context)
    assert len(read) == 1
    monkeypatch.setattr(context_module, "_CONFLICTS_KEPT_BYTES", 0)
    large = world.table.context()
    assert large.conflicts_of(context.conflicts_kept[0][0]).waiting.num_rows
    assert large.conflicts_kept == []


def test_a_key_that_is_decided_is_free_once_partitions_were_added(world: Conflicted) -> None:
    two_wait(world)
    world.send(2, upsert(5, a=1))
    world.merge_all()
    world.send(1, upsert(5, a=2))
    world.merge_all()
    world.settle(1, [3])
    world.send(0, patch(3, a=77))
    receipt = receipt_of(open_table(world.table.uri).to_arrow().schema)
    world.merge_all()
    world.settle(1, [3])
    read = open_table(world.table.uri).to_arrow(at=receipt).to_pylist()
    assert {row["id"]: row["a"] for row in read} == {3: 2, 4: 2, 5: 1}
    new = world.table.contract.model_copy(update={"version": 2, "altered_at": (10, 10, 10)})
    assert isinstance(put_once(world.table.store, paths.contract_version(2, None), encode_contract(new)), Done)
    world.table.contract = new
    with pytest.raises(VersionGone):  # whose records of key 3 counted is not what counts now
        open_table(world.table.uri).to_arrow(at=receipt)
    # Through another partition: key 3, decided, may come; key 5 still waits for a decision.
    world.send(0, upsert(3, a=7), upsert(5, a=7))
    done = world.merge()
    assert done.set_aside == 1
    assert {row["id"]: row["a"] for row in world.table.rows()} == {3: 7, 4: 2, 5: 1}
    assert world.in_force().waiting_keys.column("id").to_pylist() == [5]


def test_garbage_collection_keeps_what_a_version_still_names(tmp_path: Path) -> None:
    world = Conflicted(tmp_path, grace_s=0, history_window_s=0)
    two_wait(world)
    world.merge_all()
    tagged = objects(world)
    world.table.dataset.tags.create("kept", world.table.dataset.version)
    for a in range(3):
        world.send(1, patch(3, a=a))
        world.merge_all()
    state = GarbageState()
    for _ in range(2):
        collect_garbage(world.table.context(), state)
    assert len(objects(world)) == 4
    world.table.clean_up()
    for _ in range(2):
        collect_garbage(world.table.context(), state)
    newest = Watermarks(world.table.store, LanceTable(world.table.uri), None).newest()[1].conflicts
    assert newest is not None
    assert objects(world) == tagged | {newest.key}
    assert orphans(world.table.store.list(paths.ROOT), world.table.contract, 0, KnownFlushes()) == ()
    world.check()
    world.close()


@pytest.mark.parametrize("act", ["merge", "settle"])
def test_an_object_whose_commit_may_still_land_is_kept(tmp_path: Path, act: str) -> None:
    """Its process sleeps for longer than the grace while another one collects."""
    world = Conflicted(tmp_path, grace_s=0, history_window_s=0)
    two_wait(world)
    if act == "settle":
        world.merge_all()
    state = GarbageState()
    scripted = ScriptedTable(world.table.uri)
    scripted.before = [lambda: [collect_garbage(world.table.context(), state) for _ in range(2)]]
    if act == "settle":
        world.settle(1, [3], scripted)
    else:
        assert isinstance(world.merge(table=scripted), Merged)
    world.check()
    world.close()


def test_the_commands(world: Conflicted) -> None:
    world.send(0, upsert(3, a=1), upsert(4, a=1))
    world.merge_all()
    world.send(1, patch(3, a=2), delete(4), upsert(5, a=3))
    world.merge_all()
    assert "to be decided" in run_status(world)
    listed = json.loads(run(world, "list", "--output", "json"))["keys"]
    assert [(found["key"], found["owner"]) for found in listed] == [(["r0", n], "orders/topic-id-1/0") for n in (3, 4)]
    assert [found["waiting"] for found in listed] == [
        [{"region": "orders/topic-id-1/1", "partition": 1, "state": state, "first": 0, "next": 3}]
        for state in ("patch", "delete")
    ]
    assert '["r0", 3]  the table has orders/topic-id-1/0' in run(world, "list")
    version = world.table.dataset.version
    shown = run(world, "settle", "orders-1", "--key", '["r0",3]', "--dry-run")
    assert "1 key" in shown
    assert "nothing was changed (--dry-run)" in shown
    (seen,) = {json.loads(run(world, "list", "-o", "json"))["seen"]}
    decision = {"partition": 1, "seen": seen, "keys": 1, "changed": 1, "dropped": {}}
    looked = run(world, "settle", "orders-1", "--key", '["r0",3]', "--dry-run", "-o", "json")
    assert told(looked) == {**decision, "dry_run": True}
    assert "no waiting key has records of partition 2" in run(world, "settle", "orders-2", "--all", "--yes")
    for wrong in (["--key", '["r0",5]'], ["--key", "r0"], [], ["--all", "--key", '["r0",3]']):
        with pytest.raises(InvalidInput):
            run(world, "settle", "orders-1", *wrong, "--yes")
    with pytest.raises(InvalidInput, match="keys without records through"):
        run(world, "settle", "orders-2", "--key", '["r0",3]', "--yes")
    for yes in ([], ["--yes"]):  # it is said before anybody is asked
        with pytest.raises(InvalidInput, match="has topic orders"):
            run(world, "settle", "others-1", "--all", *yes)
    with pytest.raises(
        InvalidInput, match=r"With --yes, the waiting records of other partitions are dropped\. This cannot be undone"
    ):
        run(world, "settle", "orders-1", "--all")
    assert world.table.dataset.version == version
    settled = run(world, "settle", "orders-1", "--key", '["r0", 3]', "--yes", "-o", "json")
    assert told(settled) == {**decision, "dry_run": False}
    world.model.settle(1, [3])
    world.check()
    shown = run(world, "settle", "orders-0", "--all", "--dry-run", "-o", "json")
    assert told(shown)["dropped"] == {"orders/topic-id-1/1": 1}
    assert "waiting records of 1 key are dropped" in run(world, "settle", "orders-0", "--all", "--yes")
    world.model.settle(0, [4])
    world.check()
    assert "0 keys" in run(world, "list")
    with pytest.raises(InvalidInput, match="--seen"):
        run(world, "settle", "orders-0", "--all", "--seen", "../x", "--yes")
    world.send(0, patch(3, a=9))
    world.merge_all()
    assert world.model.waits(), "later records through another partition are conflicts again"


def test_a_decision_about_what_was_seen(world: Conflicted) -> None:
    """What came in between of other keys is no obstacle, of these it is; a flusher that is faster counts, too."""
    world.send(0, *upserts(range(4), a=1))
    world.merge_all()
    world.send(1, *upserts(range(3), a=2))
    world.merge_all()
    seen = json.loads(run(world, "list", "--output", "json"))["seen"]
    assert f"as of {seen}" in run(world, "list")
    assert f"as of {seen}" in run(world, "settle", "orders-1", "--all", "--dry-run")
    world.send(1, upsert(3, a=2), patch(2, a=3))
    world.send(2, delete(1))
    world.merge_all()
    settle_seen = ["settle", "orders-1", "--yes", "--seen", seen]
    for changed in (["--all"], ["--key", '["r0",2]'], ["--key", '["r0",0]', "--key", '["r0",1]']):
        with pytest.raises(InvalidInput, match="no longer wait as in"):
            run(world, *settle_seen, *changed)
    run(world, *settle_seen, "--key", '["r0",0]')
    world.model.settle(1, [0])
    world.check()
    with pytest.raises(InvalidInput, match="no longer wait as in"):
        run(world, *settle_seen, "--key", '["r0",2]')
    seen = json.loads(run(world, "list", "--output", "json"))["seen"]
    world.send(0, patch(3, a=9))
    world.send(2, patch(3, a=9))
    scripted = ScriptedTable(world.table.uri)
    scripted.before = [world.merge]
    with pytest.raises(InvalidInput, match="no longer wait as in"):
        settle(world.table.context(scripted), world.table.regions[1], lambda _: world.keys([3]), seen)
    world.check()


@pytest.mark.parametrize("act", ["compaction", "clean-up"])
def test_an_owner_stays_when_nothing_else_tells_whose_the_row_is(world: Conflicted, act: str) -> None:
    """The key index then has the region of the row that the decided one replaced."""
    world.send(0, upsert(3, a=1), upsert(5, a=1))
    world.merge_all()
    keep_up(world.table.context(), UpkeepState())
    world.send(1, upsert(3, a=2))
    world.merge_all()
    world.settle(1, [3])
    if act == "compaction":
        world.table.dataset.optimize.compact_files()
    else:
        world.table.dataset.delete("id = 5")
        del world.model.keys[5]
        world.table.clean_up()
    keep_up(world.table.context(), UpkeepState())
    world.send(1, upsert(3, a=50))
    world.merge_all()
    assert not world.model.waits()


def test_a_merge_that_lands_before_the_decision_is_finished_first(
    world: Conflicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_wait(world)
    world.merge_all()
    world.send(2, upsert(9, a=5))
    real = finish_newest

    def then_another_merges(context: FlusherContext) -> object:
        done = real(context)
        monkeypatch.setattr(settle_module, "finish_newest", real)
        scripted = ScriptedTable(world.table.uri)
        scripted.before = [lambda: world.table.user_append(0, [9], in_model=False)]
        assert isinstance(world.merge(table=scripted, finish=False), Merged)
        return done

    monkeypatch.setattr(settle_module, "finish_newest", then_another_merges)
    world.settle(1, [3])
    finish_newest(world.table.context())
    world.check()


def test_a_decision_is_planned_again_where_its_version_was_cleaned_up(
    world: Conflicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_wait(world)
    world.merge_all()

    def cleaned_up(*_: object) -> NoReturn:
        monkeypatch.setattr(settle_module, "run_tasks", run_tasks)
        world.table.user_append(0, [90], in_model=False)
        world.table.clean_up()
        raise VersionGone("its files are gone")

    monkeypatch.setattr(settle_module, "run_tasks", cleaned_up)
    world.settle(1, [3])
    assert {row["id"]: row["a"] for row in world.table.rows() if row["id"] != 90} == {3: 2, 4: 2}


def test_loads_bring_back_nothing_that_an_owner_has_deleted(world: Conflicted, tmp_path: Path) -> None:
    def rows(*ids: int) -> Path:
        file = tmp_path / f"{ids}.parquet"
        table = pa.Table.from_pylist(
            [{"region": "r0", "id": id, "a": -1} for id in ids], world.table.contract.rows.table
        )
        pq.write_table(table, file)
        return file

    def loaded(*ids: int) -> tuple[int, int]:
        files = find_files([str(rows(*ids))], {})
        done = load(world.table.context(), files, LoadAsked("export"))
        return done.inserted, done.deleted

    world.send(0, upsert(3, a=1), upsert(9, a=1))
    world.send(1, upsert(6, a=1))
    world.merge_all()
    world.send(1, delete(3))
    world.merge_all()
    assert loaded(9) == (0, 0)  # it has begun
    # Decided: the delete of partition 1 stands.  Waiting: that of key 5 through it, behind one of key 6 that was merged.
    world.send(1, delete(6))
    world.merge_all()
    world.send(0, upsert(5, a=1), upsert(6, a=2))
    world.send(1, delete(5), delete(6))
    world.merge_all()
    world.settle(1, [3])
    assert {id for id, _ in world.model.waits()} == {5, 6}
    assert loaded(3, 5, 6) == (1, 2)
    assert {row["id"]: row["a"] for row in world.table.rows()} == {5: -1, 9: 1}


def test_keys_that_are_decided_take_little_room() -> None:
    """Of tables with wide rows too."""
    schema = RowSchema(
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 1536))]), ("id",), ()
    )
    region = Region("orders", TopicId("t"), 0)
    keys = pa.table({"id": np.arange(100_000)}, schema.key)
    found = Conflicts.none(schema).with_owner(MergedFrom(region, Position(1)), keys)
    assert decode_conflicts(encode_conflicts(found, "0badcafe")[0], "here", schema) == found


def run(world: Conflicted, *arguments: str) -> str:
    config = Path(world.table.uri).parent / "lancewal.yaml"
    config.write_text(yaml.safe_dump({"table": {"uri": world.table.uri}}))
    done = CliRunner().invoke(app, [*arguments, "--config", str(config)])
    if isinstance(done.exception, LancewalError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def told(output: str) -> dict[str, object]:
    """The object behind what is logged."""
    found: dict[str, object] = json.loads(output[output.index("{\n") :])
    return found


def run_status(world: Conflicted) -> str:
    return status_text(table_status(Settings(), world.table.uri))


@pytest.mark.parametrize("choice", ["drop", "replay"])
def test_after_a_restore_keys_are_as_the_restored_version_had_them(world: Conflicted, choice: Choice) -> None:
    two_wait(world)
    world.merge_all()
    restored = world.table.dataset.version
    before = world.in_force()
    world.send(2, upsert(4, a=9), upsert(6))
    world.merge_all()
    world.settle(1, [3])
    lance.dataset(world.table.uri, version=restored).restore()  # type: ignore[no-untyped-call] # Lance has no types for it
    with repair(world) as context:
        repair_restored(context, plan_restored(context, choice))
    assert world.in_force() == before
    while isinstance(merge_next(world.table.context(), OPEN_ROWS), Merged):
        finish_newest(world.table.context())
    waiting = {(row["id"], partition_of(row)) for row in world.in_force().waiting.to_pylist()}
    assert waiting == {(3, 0), (3, 1), *({(4, 2)} if choice == "replay" else set())}


def test_a_lower_bound_is_that_of_what_names_the_object(world: Conflicted) -> None:
    """Merges that nothing tells of have set records aside: what the indexes have marked since does not count."""
    two_wait(world)
    world.table.round()
    world.send(2, upsert(4, a=9))
    world.table.round()
    kept = sorted(world.table.recorded())
    world.table.user_append(0, [90], in_model=False)
    world.table.user_append(0, [91], in_model=False)
    merged = [v for v in kept if Watermarks(world.table.store, LanceTable(world.table.uri), None).at(v).version == v]
    world.table.clean_up()
    world.table.store.delete([paths.merge_record(TableVersion(v), None) for v in kept if v >= merged[-1]])
    lost = world.table.take_away(paths.CONFLICTS)
    with repair(world) as context, pytest.raises(ObjectMissing, match="keys in conflict"):
        plan_watermark(context)
    world.table.put_back(lost)
    with repair(world) as context:
        plan = plan_watermark(context)
        assert plan is not None
        accept_watermark(context, plan)
    world.table.round()
    waiting = {(row["id"], partition_of(row)) for row in world.in_force().waiting.to_pylist()}
    assert waiting == {(3, 0), (3, 1), (4, 2)}


def test_whose_rows_are_is_known_behind_a_restore(world: Conflicted) -> None:
    """What the versions between say of files that they had no more counts for nothing."""
    world.send(0, upsert(1, a=1))
    world.merge_all()
    world.send(0, upsert(2, a=2))
    world.merge_all()
    restored = world.table.dataset.version
    world.send(0, delete(2))
    world.merge_all()
    world.send(0, upsert(3, a=3))
    world.merge_all()
    keep_up(world.table.context(), UpkeepState())
    lance.dataset(world.table.uri, version=restored).restore()  # type: ignore[no-untyped-call] # Lance has no types for it
    with repair(world) as context:
        repair_restored(context, plan_restored(context, "drop"))
    keep_up(world.table.context(), UpkeepState())
    world.send(1, upsert(2, a=99))
    assert world.merge().set_aside == 1
    assert {row["id"]: row["a"] for row in world.table.rows()} == {1: 1, 2: 2}


@contextmanager
def repair(world: Conflicted) -> Iterator[RepairContext]:
    table = LanceTable(world.table.uri)
    flusher = world.table.context(table)
    yield RepairContext(
        flusher.store, table, flusher.states, flusher.watermarks, flusher.tasks, flusher.clock, flusher.contract,
        flusher.contracts, flusher.new_id,
    )  # fmt: skip


def test_a_damaged_generation_is_left_where_it_is_all_that_waits(
    world: Conflicted, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(0, upsert(7, a=1))
    world.merge_all()
    world.send(1, upsert(7, a=2), upsert(8, a=3))

    def damaged(*_: object) -> NoReturn:
        raise ObjectCorrupt("a data file is corrupt")

    with monkeypatch.context() as patched:
        patched.setattr(set_aside_module, "_split", damaged)
        result = world.merge()
    assert isinstance(result, NothingToMerge)
    assert [region.partition for region in result.left] == [1]
    world.merge_all()
    world.check()


def test_the_receipt_of_a_spark_read_lets_no_other_version_stand_in(world: Conflicted) -> None:
    """Which keys meet in the deltas only the tasks will know."""
    options = {"table": world.table.uri}
    world.table.generation(0, [upsert(3, a=10)], of=0, flush=True)
    assert pin_read(options).receipt.left_out == 0
    world.table.generation(1, [upsert(3, a=20)], of=0, flush=False)
    receipt = pin_read(options).receipt
    assert receipt.left_out == 1
    assert isinstance(merge_next(world.table.context(), OPEN_ROWS), Merged)
    finish_newest(world.table.context())
    world.table.clean_up()
    with pytest.raises(VersionGone):
        open_table(world.table.uri).to_arrow(at=receipt)


@pytest.mark.parametrize("dropped", [(), ("tags",)])
def test_rows_beside_one_set_aside_have_the_columns_of_the_newest_contract(
    tmp_path: Path, dropped: Sequence[str]
) -> None:
    """Their file was written under an older one, and is rewritten."""
    table = FlusherTable(tmp_path, keyed_by_bytes=True)
    table.generation(0, upserts(range(4)), of=0)
    table.change_columns({"a": "c", **dict.fromkeys(dropped)}, b="float64")
    table.generation(1, [Operation(Op.UPSERT, 1, {"c": 1, "b": 0.5})], of=0)
    table.round(OPEN_ROWS)
    ref = table.context().watermarks.newest()[1].conflicts
    assert ref is not None
    assert set(read_conflicts(table.store, ref, table.contract).waiting_keys["id"].to_pylist()) == {1}
    found = sorted(lance.dataset(table.uri).to_table().to_pylist(), key=lambda row: row["id"])
    assert found == [row for (_, id), row in sorted(table.model.items()) if id != 1]
