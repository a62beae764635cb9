"""Tables keyed by bytes: a key that comes through a second region is found, wherever its row has gone meanwhile.

What the table must hold is a dict; what a merge must not do is told by the table's version and the generations' states.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.errors import ContractMismatch, RegionConflict
from lancewal_core.names import paths
from lancewal_core.process.failpoints import point
from lancewal_core.store.object_store import Done, put_once
from lancewal_core.table.contract import encode_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import Merged, NothingToMerge, merge_next
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.upkeep import key_runs as key_upkeep
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.key_runs import UpkeepState, keep_up
from tests.support.flusher_tables import COMBINE, OPEN_ROWS, FlusherTable, Operation, delete, patch, upsert, upserts


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path, partitions=3, keyed_by_bytes=True)
    yield made
    made.close()


NONE_ASIDE = replace(OPEN_ROWS, conflict_keys_max=0)
"""Any key of two regions stops the merge."""


def no_index(_: FlusherTable) -> None:
    """Rows whose files have no key run yet."""


def index(table: FlusherTable) -> None:
    keep_up(table.context(), UpkeepState())


def index_and_compact(table: FlusherTable) -> None:
    index(table)
    compact(table, 1_000)
    index(table)


def compact(table: FlusherTable, target_rows: int) -> None:
    """One round over fragments of less than half as many rows."""
    limits = CompactionLimits(target_rows=target_rows).to_the_end()
    assert isinstance(compact_next(table.context(), limits, FileSizes(), with_sentinel=True), Compacted)


def many_runs(table: FlusherTable) -> None:
    """So many runs that they are merged into one."""
    for n in range(10):
        table.generation(2, upserts(range(1000 + n, 1001 + n)))
        table.round()


def lost_index(table: FlusherTable) -> None:
    """The catalog is lost: runs are written anew, from what the commits say."""
    index(table)
    table.take_away(paths.key_catalog_prefix(None))
    index(table)


WAYS = [no_index, index, index_and_compact, many_runs, lost_index]


def merge(table: FlusherTable) -> Merged:
    done = merge_next(table.context(), OPEN_ROWS)
    assert isinstance(done, Merged)
    return done


def finish(table: FlusherTable) -> None:
    finish_newest(table.context())


def conflict(table: FlusherTable, partition: int) -> RegionConflict:
    """The merge must leave the partition where it may set nothing aside, and change nothing."""
    before, states = table.dataset.version, table.states(partition)
    done = merge_next(table.context(), NONE_ASIDE)
    assert isinstance(done, NothingToMerge)
    assert (table.dataset.version, table.states(partition)) == (before, states)
    assert states[-1] == "FLUSHED"
    ((region, error),) = done.left.items()
    assert region == table.regions[partition]
    assert isinstance(error, RegionConflict)
    return error


def two_regions(table: FlusherTable, way: Callable[[FlusherTable], None]) -> None:
    """Keys 0 to 9 of region 0, and 0 to 4 of region 1, merged."""
    table.generation(0, upserts(range(10)))
    table.generation(1, upserts(range(5)))
    merge(table)
    finish(table)
    way(table)


@pytest.mark.parametrize("way", WAYS)
def test_a_key_of_another_region_stops_the_merge(table: FlusherTable, way: Callable[[FlusherTable], None]) -> None:
    two_regions(table, way)
    held = dict(table.model)
    table.generation(1, [upsert(7, s="payload")], of=0)
    error = conflict(table, 1)
    assert error.where["partitions"] == [0, 1]
    assert error.where["keys"] == 1
    assert "payload" not in str(error)
    assert "r0" not in str(error)
    table.model = held
    table.check()


@pytest.mark.parametrize("way", WAYS)
def test_the_same_key_through_its_own_region_is_merged(
    table: FlusherTable, way: Callable[[FlusherTable], None]
) -> None:
    two_regions(table, way)
    table.generation(0, [*upserts(range(3, 8), a=1), delete(9), patch(1, a=7)])
    table.generation(1, [delete(0), patch(1, a=7)])
    done = merge(table)
    table.check()
    assert done.regions_not_known == 0


@pytest.mark.parametrize("operation", [delete(3), patch(3, a=1)])
def test_deletes_and_patches_conflict_too(table: FlusherTable, operation: Operation) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    table.generation(2, [operation], of=0)
    conflict(table, 2)


def test_rows_that_one_merge_writes_of_several_regions(table: FlusherTable) -> None:
    """Survivors of combined generations and completed patches lie in one file: each row has its own region."""
    for partition in (0, 1, 2):
        table.generation(partition, upserts(range(4)))
    table.round(COMBINE)
    for partition in (0, 1, 2):
        table.generation(partition, [*upserts(range(10, 13)), patch(1, a=5)])
        table.generation(partition, [patch(2, s="x"), patch(11, s="y"), delete(0)])
    (combined,) = table.round(COMBINE).merges
    assert combined.rows_written == 3 * 5
    for partition in (0, 1, 2):
        table.generation(partition, [*upserts([1, 2, 10, 11, 12], a=9)])
    assert [m.regions_not_known for m in table.round(COMBINE).merges] == [0]
    table.check()
    for id in (1, 2, 3, 10, 11, 12):
        table.generation(1, [upsert(id)], of=2)
    conflict(table, 1)


def test_two_regions_in_one_merge(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.generation(1, upserts(range(3)))
    table.generation(1, [delete(5), delete(6)], of=0)
    done = merge_next(table.context(), replace(COMBINE, conflict_keys_max=0))
    assert isinstance(done, Merged)
    ((region, error),) = done.left.items()
    assert (region, error.where["keys"]) == (table.regions[0], 2)
    assert "generations 1 to 2 of partition 1" in str(error)
    assert list(done.generations) == [table.regions[1]]
    assert {row["id"] for row in table.rows()} == {0, 1, 2}


def test_a_hidden_row_of_another_region_is_no_conflict(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    table.generation(0, [delete(3)])
    table.round()
    table.generation(1, upserts([3], a=4), of=0)
    merge(table)
    table.check()


def test_the_way_on_that_the_error_names(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    table.generation(1, upserts([3], a=4), of=0)
    assert "delete these rows" in str(conflict(table, 1))
    model = dict(table.model)
    table.user_delete(0, 3)
    table.model = model
    merge(table)
    table.check()


def test_a_key_of_which_entries_name_two_regions(table: FlusherTable) -> None:
    """After a person has let the other row stand, and a compaction: what is not certain is not known."""
    table.generation(0, upserts(range(10)))
    table.round()
    table.user_delete(0, 3)
    table.generation(1, upserts([3], a=4), of=0)
    table.round()
    compact(table, 1_000)
    index(table)
    table.generation(1, upserts([3], a=5), of=0)
    assert merge(table).regions_not_known == 1
    table.check()


def test_rows_that_no_region_is_known_of_pass_and_are_counted(table: FlusherTable) -> None:
    table.user_append(0, [1, 2, 3], in_model=True)
    table.round()
    table.generation(1, upserts([2], a=4), of=0)
    assert merge(table).regions_not_known == 1
    table.check()


def altered(table: FlusherTable, positions: tuple[int, ...]) -> FlusherTable:
    """The contract after ``table alter --partitions`` at these positions."""
    new = table.contract.model_copy(update={"version": 2, "altered_at": positions})
    assert isinstance(put_once(table.store, paths.contract_version(2, None), encode_contract(new)), Done)
    table.contract = new
    return table


@pytest.mark.parametrize("way", WAYS)
def test_what_was_merged_before_partitions_were_added_may_come_through_another(
    table: FlusherTable, way: Callable[[FlusherTable], None]
) -> None:
    two_regions(table, way)
    altered(table, (10, 5, 10))
    table.generation(1, upserts([3], a=4), of=0)
    merge(table)
    finish(table)
    table.check()
    # From there on it has this region, and no other one.
    way(table)
    table.generation(0, upserts([3], a=5))
    conflict(table, 0)


def test_rows_merged_after_partitions_were_added_count(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    altered(table, (10, 0, 0))
    table.generation(0, upserts(range(20, 22)))
    table.round()
    table.generation(1, upserts([3, 20]), of=0)
    assert conflict(table, 1).where["keys"] == 1


def test_a_flusher_that_has_missed_a_change_of_the_partitions_says_so(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    late = table.context()
    altered(table, (10, 0, 0))
    table.generation(1, upserts([3], a=4), of=0)
    with pytest.raises(ContractMismatch, match="Start the flusher again"):
        merge_next(late, NONE_ASIDE)
    merge(table)
    catalog = table.context().keys.catalogs.read()
    with pytest.raises(ContractMismatch, match="Start the flusher again"):
        keep_up(late, UpkeepState())
    assert table.context().keys.catalogs.read() == catalog


def test_regions_are_kept_until_every_file_has_a_run(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction moves rows: what knows their regions stays until the new files are indexed, a file at a time."""
    monkeypatch.setattr("lancewal_flusher.upkeep.key_runs.RUN_ROWS", 1)
    for n in range(2):
        for partition in (0, 1):
            table.generation(partition, upserts(range(10 * n, 10 * n + 10)))
        table.round()
    compact(table, 25)
    compact(table, 25)
    assert [f.count_rows() for f in table.dataset.get_fragments()] == [20, 20]
    state = UpkeepState()
    while keep_up(table.context(), state, rows_max=1).indexed:
        pass
    for partition in (0, 1):
        table.generation(partition, upserts(range(20), a=1))
    assert merge(table).regions_not_known == 0
    table.check()


def test_rebuilt_files_keep_their_regions(table: FlusherTable) -> None:
    """Adopted files that a clean-up took are rebuilt by the follow-up, which says what their rows are."""
    table.generation(0, upserts(range(10)))
    table.generation(1, upserts(range(5)))
    merge(table)
    table.remove_files(table.flushed(0, 1))
    table.remove_files(table.flushed(1, 1))
    report = table.round()
    assert [f.fragments_rebuilt for f in report.finished] == [2]
    table.check()
    table.generation(0, upserts([1], a=3))
    assert merge(table).regions_not_known == 0
    finish(table)
    table.generation(2, upserts([4], a=3), of=1)
    conflict(table, 2)


def test_canonical_tables_say_nothing_of_regions(tmp_path: Path) -> None:
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(10)))
    made.round()
    (transaction,) = [
        p for v in range(1, made.dataset.version + 1)
        if "lancewal.merge" in (p := made.context().table.transaction(v).properties)  # type: ignore[union-attr]
    ]  # fmt: skip
    assert "lancewal.key_regions" not in transaction
    catalog = made.context().keys.catalogs.read()
    assert [run.regions for run in catalog.runs] == [()]
    made.close()


@pytest.mark.in_turns("hash_bits", "seed", each=4)
@pytest.mark.usefixtures("hash_bits", "small_parts")
@pytest.mark.parametrize("seed", range(4))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    """No merge of keys that have one region each is refused, no region is lost, and the first stray is found."""
    rng = random.Random(seed)
    table = FlusherTable(tmp_path, partitions=3, keyed_by_bytes=True)
    for _ in range(12):
        for _ in range(rng.randrange(1, 5)):
            partition = rng.randrange(3)
            operations = [one_of(rng, id) for id in range(partition, 60, 3) for _ in range(rng.choice([0, 0, 1, 2]))]
            if operations:
                table.generation(partition, operations, of=0)
        while isinstance(done := merge_next(table.context(), rng.choice([COMBINE, OPEN_ROWS])), Merged):
            assert done.regions_not_known == 0
            finish(table)
        table.check()
        if rng.random() < 0.5:
            index(table)
            if rng.random() < 0.7:
                compact_next(table.context(), CompactionLimits().to_the_end(), FileSizes(), with_sentinel=True)
                index(table)
    _, id = rng.choice(sorted(table.model))
    home = id % 3
    stray = rng.choice([partition for partition in range(3) if partition != home])
    table.generation(stray, [one_of(rng, id)], of=0)
    assert conflict(table, stray).where["partitions"] == [home, stray]
    table.close()


def one_of(rng: random.Random, id: int) -> Operation:
    return rng.choice([upsert(id, a=rng.randrange(99)), patch(id, a=rng.randrange(99)), delete(id)])


def test_a_flusher_that_is_late_drops_no_newer_run(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked before a compaction, and writes the catalog after another one has indexed what came of that."""
    for n in range(4):
        table.generation(n % 2, upserts(range(10 * n, 10 * n + 10)))
        table.round()
    table.user_append(2, [1], in_model=True)
    late = table.context()

    def in_between(name: str, **where: Any) -> Any:
        monkeypatch.setattr(key_upkeep, "point", point)
        compact(table, 1_000)
        index(table)
        return point(name, **where)

    monkeypatch.setattr(key_upkeep, "point", in_between)
    keep_up(late, UpkeepState())
    index(table)
    for partition in (0, 1):
        table.generation(partition, upserts(range(10 * partition, 10 * partition + 5)))
    assert merge(table).regions_not_known == 0
    table.check()


def moved_to_another_region(table: FlusherTable) -> None:
    """Deleted through one region, then written through another one: both are merged, and only the first is indexed."""
    table.generation(0, upserts(range(10)))
    table.round()
    table.generation(0, [delete(3)])
    table.round()
    table.generation(1, upserts([3], a=4), of=0)
    merge(table)
    finish(table)


def test_a_compaction_waits_for_the_index(table: FlusherTable) -> None:
    """Else the row would be taken for one of the region that its key had before."""
    moved_to_another_region(table)
    limits = CompactionLimits(target_rows=1_000).to_the_end()
    assert compact_next(table.context(), limits, FileSizes(), with_sentinel=True) is None
    index(table)
    compact(table, 1_000)
    index(table)
    table.generation(1, upserts([3], a=5), of=0)
    merge(table)
    table.check()


def test_a_flusher_that_knows_an_older_catalog_concludes_nothing_from_it(table: FlusherTable) -> None:
    """It has looked some seconds ago; since then another one has merged, indexed and compacted."""
    late = table.context()
    table.generation(0, upserts(range(10)))
    table.round(context=late)
    table.generation(0, [delete(3)])
    table.round(context=late)
    table.generation(1, upserts([3], a=4), of=0)
    merge(table)
    finish(table)
    index(table)
    compact(table, 1_000)
    keep_up(late, UpkeepState())
    table.generation(1, upserts([3], a=5), of=0)
    assert merge(table).set_aside == 0
    table.check()


def test_an_index_that_begins_anew_concludes_nothing_from_its_first_half(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lancewal_flusher.upkeep.key_runs.RUN_ROWS", 1)
    moved_to_another_region(table)
    for n in range(2):
        table.generation(1, upserts([100 + n], a=n), of=0)
        table.round()
    compact(table, 12)  # leaves the fragment where the key was before
    index(table)
    assert [f.metadata.physical_rows for f in table.dataset.get_fragments()] == [10, 3]
    table.take_away(paths.key_catalog_prefix(None))
    state = UpkeepState()
    while keep_up(table.context(), state, rows_max=1).indexed:
        pass
    table.generation(1, upserts([3], a=5), of=0)
    assert merge(table).regions_not_known == 1
    table.check()


def test_all_rows_in_conflict_are_named_at_once(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5)))
    table.round()
    table.generation(0, upserts(range(5, 10)))
    table.round()
    table.generation(1, upserts(range(3, 7), a=4), of=0)
    error = conflict(table, 1)
    assert error.where["keys"] == 4
    addresses = [3, 4, 1 << 32, (1 << 32) + 1]
    assert error.where["addresses"] == addresses
    assert all(str(address) in str(error) for address in addresses)
    assert "generations 1 to 1 of partition 1, offsets 0 to 3" in str(error)


def test_files_that_no_commit_tells_of_are_looked_for_once(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file of a load is never indexed: that must not make each merge read all versions since."""
    monkeypatch.setattr(key_upkeep, "FILE_ROWS_MAX", 20)
    table.user_append(0, range(500, 530), in_model=True)
    read: list[int] = []
    transaction = LanceTable.transaction

    def counted(self: LanceTable, version: int) -> Any:
        read.append(version)
        return transaction(self, version)

    monkeypatch.setattr(LanceTable, "transaction", counted)
    context, state, counts = table.context(), RoundState(), []
    for n in range(12):
        table.generation(0, upserts([n]))
        read.clear()
        run_round(context, OPEN_ROWS, state, 0.0)
        counts.append(len(read))
    assert counts[-1] <= counts[1]
    table.check()
