"""Upkeep of the key index: everything gets covered, runs grow few, what is out of use goes, whoever interferes."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lancewal_core.keys.catalog import CoveredFile, KeyCatalog, KeyPart, KeyRun, catalog_family
from lancewal_core.keys.code import code_keys
from lancewal_core.names import paths
from lancewal_core.process.failpoints import FailpointError, configure
from lancewal_core.store.versioned import newest_version
from lancewal_core.table.lance import row_files
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.origins import origins_of
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.upkeep import adopted_keys
from lancewal_flusher.upkeep import key_runs as key_upkeep
from lancewal_flusher.upkeep.key_runs import UpkeepState, keep_up
from lancewal_flusher.upkeep.key_tiers import FAN_IN, RunInUse, to_merge
from tests.support.flusher_tables import OPEN_ROWS, FlusherTable, delete, patch, upsert, upserts
from tests.support.scripted import ManualClock


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fragments of which whole columns are read, in their order."""
    found: list[int] = []
    real = LancePinnedTable.all_rows

    def all_rows(pinned: LancePinnedTable, fragment_id: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        found.append(fragment_id)
        return real(pinned, fragment_id, columns)

    monkeypatch.setattr(LancePinnedTable, "all_rows", all_rows)
    return found


def catalog(table: FlusherTable) -> KeyCatalog:
    return table.context().keys.catalogs.read()


def covered(table: FlusherTable) -> set[str]:
    return {file.name for run in catalog(table).runs for file in run.files}


def files(table: FlusherTable) -> set[str]:
    return {name for fragment in table.context().table.newest().fragments() for name in fragment.files}


def test_after_each_round_exactly_the_files_in_use_are_covered(table: FlusherTable) -> None:
    rng = random.Random(1)
    for _ in range(2 * FAN_IN + 3):
        ids = rng.sample(range(60), 8)
        table.generation(0, [upsert(i, a=rng.randrange(99)) for i in ids[:5]] + [delete(ids[5]), patch(ids[6], a=7)])
        table.round()
        table.check()
        assert covered(table) >= files(table)
    assert len(catalog(table).runs) < FAN_IN


@pytest.mark.usefixtures("hash_bits", "small_parts")
def test_merged_runs_find_what_a_scan_finds(table: FlusherTable) -> None:
    """Every physical row of each key, whatever shares its hash and wherever the parts of runs begin and end."""
    rng = random.Random(2)
    merged = 0
    for _ in range(2 * FAN_IN + 3):
        for partition in range(2):
            table.generation(
                partition, [upsert(id) for id in rng.sample(range(150), 40)] + [delete(rng.randrange(150))]
            )
        merged += sum(report.merged for report in table.round().upkeep)
        table.check()
        assert found_by_index(table, range(150)) == found_by_scan(table)
    assert merged > 0
    assert max(len(run.parts) for run in catalog(table).runs) > 10


Place = tuple[tuple[str, int], int, int]
"""A key, the fragment and the physical row of a row that has it, perhaps a hidden one."""


def found_by_index(table: FlusherTable, ids: Sequence[int]) -> list[Place]:
    context = table.context()
    keys = [(f"r{partition}", id) for partition in range(2) for id in ids]
    asked = pa.Table.from_pylist([{"region": region, "id": id} for region, id in keys], context.contract.rows.key)
    found = context.keys.find(context.table.newest(), asked)
    assert not found.uncovered
    return sorted(
        (keys[place], fragment_id, row)
        for fragment_id, rows in found.covered.items()
        for place, row in zip(rows.places.tolist(), rows.rows.tolist(), strict=True)
    )


def found_by_scan(table: FlusherTable) -> list[Place]:
    pinned = table.context().table.newest()
    return sorted(
        ((key["region"], key["id"]), fragment.fragment_id, row)
        for fragment in pinned.fragments()
        for row, key in enumerate(
            pa.Table.from_batches(pinned.all_rows(fragment.fragment_id, ["region", "id"])).to_pylist()
        )
    )


def test_the_versions_of_one_flusher_use_one_state(table: FlusherTable) -> None:
    state = UpkeepState()
    table.generation(0, upserts(range(10)))
    context = table.context()
    run_round(context, OPEN_ROWS, RoundState(upkeep=state), 0.0)
    before = [info.key for info in table.store.list(paths.key_catalog_prefix(None))]
    assert keep_up(context, state) == keep_up(context, UpkeepState())
    assert [info.key for info in table.store.list(paths.key_catalog_prefix(None))] == before
    table.user_append(1, range(3), in_model=True)
    assert keep_up(context, state).indexed == 3


def test_many_rows_are_indexed_in_several_calls(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_upkeep, "RUN_ROWS", 10)
    for start in range(0, 50, 5):
        table.user_append(0, range(start, start + 5), in_model=True)
    context, state = table.context(), UpkeepState()
    assert keep_up(context, state, rows_max=20).indexed == 20
    assert keep_up(context, state, rows_max=20).indexed == 20
    assert keep_up(context, state, rows_max=20).indexed == 10
    assert keep_up(context, state, rows_max=20).indexed == 0
    assert covered(table) == files(table)


def test_keys_of_files_that_a_merge_adopts_are_not_read_again(table: FlusherTable, read: list[int]) -> None:
    table.generation(0, [*upserts(range(20, 9, -1)), delete(3), delete(99), patch(4, a=1)])
    table.generation(1, upserts([2, 7, 5]))
    state = RoundState()
    run_round(table.context(), OPEN_ROWS, state, 0.0)
    fragments = {f.files[0]: f for f in table.context().table.newest().fragments()}
    assert covered(table) == set(fragments)
    written = [f.fragment_id for f in fragments.values() if f.physical_rows == 1]  # the patch, which nobody has adopted
    assert read == written
    assert state.upkeep.adopted.take(next(iter(fragments))) is None  # nothing is kept beyond its use
    table.check()
    # The entries are those of the files: keys found by them are replaced, and no other.
    table.generation(0, [*upserts(range(8, 15), a=7), delete(20)])
    table.generation(1, [delete(7), *upserts([5], a=7)])
    run_round(table.context(), OPEN_ROWS, RoundState(), 0.0)
    table.check()


def test_more_keys_than_may_be_held_are_read_from_the_files(
    table: FlusherTable, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    table.generation(0, upserts(range(4)))
    table.generation(1, upserts(range(4)))
    of_one = pa.table({"region": ["r0"] * 4, "id": range(4)}).nbytes
    monkeypatch.setattr(adopted_keys, "BYTES_MAX", of_one + of_one // 2)
    table.round()
    assert covered(table) == files(table)
    assert len(read) == 1
    table.generation(0, upserts(range(2, 6), a=1))
    table.generation(1, upserts(range(2, 6), a=1))
    table.round()
    table.check()


def test_a_flush_of_several_files_is_adopted_with_the_keys_of_each(
    table: FlusherTable, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "ROWS_PER_FILE", 4)
    table.generation(0, [delete(77), *upserts(range(10))])
    table.round()
    assert len(files(table)) == 3
    assert covered(table) == files(table)
    assert read == []
    table.generation(0, upserts([1, 4, 7, 9], a=1))
    table.round()
    table.check()


def test_keys_of_files_that_are_out_of_use_are_forgotten(table: FlusherTable) -> None:
    table.generation(0, upserts(range(4)))
    table.round()
    state = UpkeepState()
    gone = json.dumps({"files": [{"path": "gone.lance"}], "physical_rows": 1})
    state.adopted.add([gone], pa.table({"region": ["r0"], "id": [1]}))
    keep_up(table.context(), state)
    assert state.adopted.take("gone.lance") is None


def test_rows_with_a_null_key_are_left_to_scans(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.user_append(0, range(5), in_model=True)
    nulls = pa.record_batch({"region": pa.nulls(5, pa.string()), "id": pa.array(range(5))})
    monkeypatch.setattr(LancePinnedTable, "all_rows", lambda *_: iter([nulls]))
    context, state = table.context(), UpkeepState()
    assert keep_up(context, state).indexed == 0
    assert state.unfit == files(table)
    assert covered(table) == set()


def test_two_flushers_that_index_the_same_file_do_no_harm(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    table.user_append(1, range(5), in_model=True)
    first, second = table.context(), table.context()
    real = first.keys.catalogs.swap

    def late(*arguments: object) -> object:
        keep_up(second, UpkeepState())
        return real(*arguments)  # type: ignore[arg-type]

    first.keys.catalogs.swap = late  # type: ignore[method-assign, assignment]
    keep_up(first, UpkeepState())
    names = [file.name for run in catalog(table).runs for file in run.files]
    assert len(names) > len(set(names))  # the same file twice
    table.generation(1, upserts(range(3, 8), a=1))
    table.round()
    table.check()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_leaves_an_index_that_is_right(table: FlusherTable, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table.generation(0, upserts(range(10)))
    configure({"LANCEWAL_TESTING": "1", "LANCEWAL_FAILPOINT": f"keys.cas:{when}=error"})
    try:
        with pytest.raises(FailpointError):
            table.round()
    finally:
        configure({})
    table.generation(0, upserts(range(5, 15), a=1))
    table.round()
    table.check()
    assert covered(table) == files(table)


def test_parts_of_merged_runs_are_collected_after_the_grace_period(table: FlusherTable) -> None:
    for round in range(FAN_IN):
        table.generation(0, upserts(range(10 * round, 10 * round + 10)))
        table.round()
    orphan = paths.key_part("orphan")
    table.store.put_if_absent(orphan, b"of an attempt that was lost")
    named = {part.object for run in catalog(table).runs for part in run.parts}
    clock = ManualClock()
    context, state = replace(table.context(), clock=clock), GarbageState()
    assert {info.key for info in table.store.list(paths.KEY_PARTS)} > named | {orphan}
    collect_garbage(context, state)
    clock.seconds += table.contract.grace_s - 1
    collect_garbage(context, state)
    assert {info.key for info in table.store.list(paths.KEY_PARTS)} > named
    clock.seconds += 2
    collect_garbage(context, state)
    assert {info.key for info in table.store.list(paths.KEY_PARTS)} == named
    table.generation(0, upserts(range(35, 55), a=1))
    table.round()
    table.check()


def test_parts_of_a_run_that_takes_long_to_write_are_no_garbage(table: FlusherTable) -> None:
    """Garbage is collected beside it; parts of one that was given up go."""
    table.generation(0, upserts(range(10)))
    table.round()
    table.user_append(1, range(5), in_model=True)
    clock = ManualClock()
    context, state = replace(table.context(), clock=clock), GarbageState()
    real = context.keys.catalogs.swap

    def collect() -> set[str]:
        """What is left."""
        for _ in range(2):
            collect_garbage(context, state)
            clock.seconds += table.contract.grace_s + 1
        return {info.key for info in table.store.list(paths.KEY_PARTS)}

    def late(*arguments: object) -> object:
        collect()
        return real(*arguments)  # type: ignore[arg-type]

    context.keys.catalogs.swap = late  # type: ignore[method-assign, assignment]
    assert keep_up(context, UpkeepState()).indexed == 5
    named = {part.object for run in catalog(table).runs for part in run.parts}
    assert len(named) == 2
    assert collect() == named
    table.user_append(1, range(5, 9), in_model=True)
    context.keys.catalogs.swap = lambda *_: None  # type: ignore[method-assign]
    keep_up(context, UpkeepState())
    assert len(table.store.list(paths.KEY_PARTS)) == 3
    assert collect() == named


def test_of_a_catalog_that_cannot_be_read_no_part_is_collected(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    newest = newest_version(table.store, catalog_family(None))
    assert newest is not None
    table.store.put_if_absent(paths.key_catalog_version(newest.version + 1, None), b"damaged")
    clock = ManualClock()
    context, state = replace(table.context(), clock=clock), GarbageState()
    before = table.store.list(paths.KEY_PARTS)
    for _ in range(3):
        collect_garbage(context, state)
        clock.seconds += table.contract.grace_s + 1
    assert table.store.list(paths.KEY_PARTS) == before


def run(name: str, rows: int, used: int | None = None) -> RunInUse:
    used_rows = rows if used is None else used
    file = CoveredFile(name=f"{name}.lance", rows=used_rows)
    part = KeyPart(object=paths.key_part(name), entries=rows, first=0, last=1, size=1, crc32c=0)
    return RunInUse(KeyRun(name=name, files=(file,), parts=(part,)), (file,))


def groups(*runs: RunInUse) -> list[list[str]]:
    return [[member.run.name for member in group] for group in to_merge(runs)]


def test_runs_of_about_one_size_are_merged_when_there_are_enough() -> None:
    small = [run(f"s{i}", 1000 + i) for i in range(FAN_IN)]
    large = [run(f"l{i}", 1_000_000) for i in range(FAN_IN)]
    assert groups(*small[1:], *large[1:]) == []
    assert groups(*small, *large[1:]) == [[f"s{i}" for i in range(FAN_IN)]]
    assert groups(*small, *large) == [[f"s{i}" for i in range(FAN_IN)], [f"l{i}" for i in range(FAN_IN)]]


def test_a_run_mostly_out_of_use_is_written_again_by_itself() -> None:
    assert groups(run("half", 100, 50)) == []
    assert groups(run("less", 100, 49), run("whole", 100)) == [["less"]]


def test_regions_of_keys_are_looked_up_in_one_run_at_a_time(tmp_path: Path) -> None:
    """Each of many runs may have an entry of every key: these are not held together."""
    table = FlusherTable(tmp_path, keyed_by_bytes=True)
    table.generation(0, upserts(range(5_000)))
    table.round()
    context = table.context()
    pinned, (run,) = context.table.newest(), context.keys.catalogs.read().runs
    names = list(context.contract.primary_key)
    rows = [*pinned.all_rows(pinned.fragments()[0].fragment_id, names)]
    keys = code_keys(pa.Table.from_batches(rows).cast(context.contract.rows.key))

    def peak(runs: int) -> int:
        origins = origins_of(context)
        origins.begin(pinned, {}, [run] * runs)
        tracemalloc.start()
        try:
            found = origins.find("of a compaction", keys)
            assert found is not None
            assert found.tolist() == [0] * len(keys)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)
    assert peak(30) < 2 * peak(3)
    table.close()
