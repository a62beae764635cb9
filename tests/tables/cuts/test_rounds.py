"""Tables of a cut wait for the store side by side: their number adds requests, and no round of requests."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from benchmarks.tables import create
from lancewal_core.catalog.cut import Cut
from lancewal_core.errors import CutMissing
from lancewal_core.names.ids import Position
from lancewal_core.open import Address
from lancewal_core.settings.load import Settings
from lancewal_core.table.snapshots import snapshots
from lancewal_flusher.cuts.positions import CutMember, PositionSource
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_flusher.open import Threads, open_on
from lancewal_reader.table import reads_of
from lancewal_tables.cuts.make import CutWanted, make_cut
from tests.support.small_s3.counted import Counted, CountedS3, CountedTasks, counted
from tests.twins.memory_catalog import MemoryCatalog

AT_ZERO = PositionSource(
    lambda contracts: {it.topic: dict.fromkeys(range(it.partitions), Position(0)) for it in contracts}
)


def members(store: CountedS3, tasks: CountedTasks, number: int, stack: ExitStack) -> list[CutMember]:
    made = []
    for n in range(number):
        address = Address(f"s3://bucket/lake/{n}.lance", store.options)
        create(address, f"topic-{n}", f"id-{n}", 2)
        settings = Settings.model_validate({"table": {"uri": address.uri}, "storage": {"options": store.options}})
        context = open_on(settings, Threads(tasks, tasks), stack, on_threads=True)
        made.append(CutMember(f"t{n}", context, reads_of(context, address.uri, 0)))
    return made


def test_the_number_of_tables_adds_no_round() -> None:
    found: dict[int, Counted] = {}
    for number in (1, 6):
        with CountedS3("lake") as store, ExitStack() as stack:
            tasks, catalog = CountedTasks(store), MemoryCatalog()
            of = members(store, tasks, number, stack)
            found[number] = counted(store, lambda: make_cut(catalog, of, CutWanted("june"), AT_ZERO, tasks))  # noqa: B023 # at once
            assert len(catalog.cuts()["june"].tables) == number
    assert len(found[6].requests) == 6 * len(found[1].requests)
    assert found[6].rounds == found[1].rounds


def test_a_cut_that_fails_drops_its_snapshots_in_as_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody drops a snapshot before the record is written."""
    found: dict[int, Counted] = {}
    for number in (2, 6):
        with CountedS3("lake") as store, ExitStack() as stack:
            tasks, catalog = CountedTasks(store), MemoryCatalog()
            of = members(store, tasks, number, stack)

            def swap(name: str, instead_of: Cut | None, new: Cut | None) -> bool:
                if new is not None:
                    drop_snapshot(of[0].context.table, new.tables["t0"].snapshot or "")  # noqa: B023 # at once
                return MemoryCatalog.swap_cut(catalog, name, instead_of, new)  # noqa: B023 # at once

            monkeypatch.setattr(catalog, "swap_cut", swap)

            def fail() -> None:
                with pytest.raises(CutMissing, match=r"dropped the snapshot june-\w+ of table t0"):
                    make_cut(catalog, of, CutWanted("june"), AT_ZERO, tasks)  # noqa: B023 # at once

            found[number] = counted(store, fail)
            assert catalog.cuts() == {}
            assert [snapshots(it.context.table) for it in of] == [[]] * number
    assert found[6].rounds == found[2].rounds


def test_a_snapshot_is_found_with_one_request_however_many_there_are() -> None:
    with CountedS3("lake") as store, ExitStack() as stack:
        tasks, catalog = CountedTasks(store), MemoryCatalog()
        of = members(store, tasks, 1, stack)
        cuts = [make_cut(catalog, of, CutWanted(name), AT_ZERO, tasks) for name in ("may", "june", "july")]
        table = of[0].context.table
        for name in (cuts[1].tables["t0"].snapshot or "", "none"):
            looked = counted(store, lambda: table.find_branch(name))  # noqa: B023 # at once
            assert (len(looked.requests), looked.rounds) == (1, 1)
