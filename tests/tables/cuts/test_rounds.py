"""Requests of a cut.  Tables wait for the store side by side: their number adds requests, and no round of requests.  Unmerged
segments are fetched once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from benchmarks.memory_source import MemorySource
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import upserts
from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.opened import open_directory
from lancewal_core.cli.program import run
from lancewal_core.errors import CutMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import Position
from lancewal_core.open import Address
from lancewal_core.settings.load import Settings
from lancewal_core.table.snapshots import snapshots
from lancewal_flusher.cuts.positions import CutMember, PositionSource
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_flusher.open import Threads, open_on
from lancewal_reader.table import reads_of
from lancewal_tables.cuts.make import CutWanted, make_cut
from tests.support.catalog_entries import entry
from tests.support.small_s3.counted import Counted, CountedS3, CountedTasks, counted
from tests.support.small_s3.server import SmallS3
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


def test_other_cuts_add_no_request() -> None:
    with CountedS3("lake") as store, ExitStack() as stack:
        tasks, catalog = CountedTasks(store), MemoryCatalog()
        of = members(store, tasks, 1, stack)
        make_cut(catalog, of, CutWanted("may"), AT_ZERO, tasks)  # what is read once is read
        found = [
            counted(store, lambda: make_cut(catalog, of, CutWanted(name), AT_ZERO, tasks))  # noqa: B023 # at once
            for name in ("june", "july", "august")
        ]
        assert len({len(one.requests) for one in found}) == 1
        assert len({one.rounds for one in found}) == 1


def test_a_snapshot_is_found_with_one_request_however_many_there_are() -> None:
    with CountedS3("lake") as store, ExitStack() as stack:
        tasks, catalog = CountedTasks(store), MemoryCatalog()
        of = members(store, tasks, 1, stack)
        cuts = [make_cut(catalog, of, CutWanted(name), AT_ZERO, tasks) for name in ("may", "june", "july")]
        table = of[0].context.table
        for name in (cuts[1].tables["t0"].snapshot or "", "none"):
            looked = counted(store, lambda: table.find_branch(name))  # noqa: B023 # at once
            assert (len(looked.requests), looked.rounds) == (1, 1)


@pytest.mark.parametrize("command", ["cut make june --tables shop.* --up-to durable", "snapshot create june -t {}"])
def test_a_bundle_stands_for_its_segments(command: str, tmp_path: Path) -> None:
    """64 small segments, which ingest has copied into two bundles."""
    with SmallS3() as store:
        address = Address("s3://bucket/lake/t.lance", store.options)
        contract = create(address, "topic", "id", 2)
        ingest = MemoryIngest(address, contract, MemorySource(contract.regions), 1_000_000, 100)
        while sum(paths.parse_wal_bundle(info.key) is not None for info in address.store().list("_lancewal/wal/")) < 2:
            ingest.feed(list(upserts(2, 1_000, 1)))
        catalog = open_directory("s3://bucket/lake", store.options)
        named = entry("shop.t", address.uri, table_uuid=contract.table_uuid, topic="topic")
        assert catalog.swap_table("shop.t", None, named)
        config = tmp_path / "lancewal.yaml"
        config.write_text(
            yaml.safe_dump({"catalog": {"root": "s3://bucket/lake"}, "storage": {"options": store.options}})
        )
        store.take()
        assert run([*command.format(address.uri).split(), "-c", str(config)]) == 0
        keys = [request.below("lake/t.lance") for request in store.take() if request.method == "GET"]
        segments = [key for key in keys if paths.parse_wal_segment(key) is not None]
        assert [paths.parse_wal_bundle(key) is not None for key in keys].count(True) == 2
        assert len(segments) < 64
