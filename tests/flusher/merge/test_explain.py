"""What the next merge would do, said before: it writes nothing, and the merge then does just that."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lancewal_core.cli import program as cli
from lancewal_flusher.commands.explain import explanation_text
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.merge.explain import MergeExplanation, explain
from lancewal_flusher.merge.merge import merge_next
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.tasks.cost import Strategy
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from tests.flusher.service.test_service import tree
from tests.support.flusher_tables import FlusherTable, delete, patch, upsert, upserts

LIMITS = MergeLimits(adopt_rows=10, rewrite_bytes=0)
ROWS = 8_000


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """A fragment in each of two regions; the key index knows them."""
    made = FlusherTable(tmp_path)
    for partition in range(2):
        made.generation(partition, [upsert(id, a=1_000 * id, s=f"s{id}") for id in range(ROWS)])
    made.round(LIMITS)
    yield made
    made.close()


def files(table: FlusherTable) -> dict[str, int]:
    """Every object of the table, with its size."""
    found = (Path(folder, name) for folder, _, names in os.walk(table.uri) for name in names)
    return {str(path): path.stat().st_size for path in found}


def explanation(table: FlusherTable) -> MergeExplanation:
    found = explain(table.context(), LIMITS, CompactionLimits())
    assert isinstance(found, MergeExplanation)
    return found


def test_it_says_what_the_merge_then_does(table: FlusherTable) -> None:
    table.generation(0, [patch(id, a=-id) for id in range(4_000)])
    table.generation(1, [*upserts(range(3_000), a=5), delete(7_999), delete(9_999)])
    before = files(table)
    found = explanation(table)
    assert files(table) == before
    assert [(f.strategy, f.rows, f.replaced, f.in_place) for f in found.fragments] == [
        (Strategy.COLUMNS, ROWS, 4_000, 4_000),
        (Strategy.REWRITE, ROWS, 3_001, 0),
    ]
    assert (found.keys, found.rows_adopted, found.rows_written, found.rows_in_place) == (7_002, 3_000, 0, 4_000)
    (merge,) = table.round(LIMITS).merges
    table.check()
    assert (merge.rows_adopted, merge.rows_written, merge.rows_in_place) == (3_000, 0, 4_000)
    assert merge.rows_replaced == sum(f.replaced for f in found.fragments)
    assert merge.worn == (found.fragments[1].fragment,)
    assert explanation(table).generations == {}


def test_an_index_that_keeps_columns_from_being_patched_in_place_is_named(table: FlusherTable) -> None:
    table.dataset.create_scalar_index("a", "BTREE", name="by_a")
    table.generation(0, [patch(id, a=-id) for id in range(4_000)])
    table.generation(1, [patch(id, s="new") for id in range(4_000)])
    found = explanation(table)
    assert [(f.in_place, f.indexed_by) for f in found.fragments] == [(0, ("by_a",)), (4_000, ())]
    first = found.fragments[0]
    assert Strategy.COLUMNS not in first.bytes_of
    says = f"not patched in place, because patches set columns under index by_a: fragments {first.fragment}"
    assert says in explanation_text(found).splitlines()
    (merge,) = table.round(LIMITS).merges
    assert (merge.rows_in_place, merge.rows_written) == (found.rows_in_place, found.rows_written) == (4_000, 4_000)


def test_bytes_are_about_what_is_written(table: FlusherTable) -> None:
    table.generation(0, [patch(id, a=999 * id) for id in range(0, ROWS, 2)])
    table.generation(1, upserts(range(1_000), a=5))
    found = explanation(table)
    before = files(table)
    table.round(LIMITS)
    after = files(table)
    kept = ("/data/", "/_deletions/", "/_lancewal/keys/")
    written = sum(size for name, size in after.items() if name not in before and any(k in name for k in kept))
    assert found.bytes_written == pytest.approx(written, rel=0.2)


def test_fragments_that_no_index_covers_are_looked_through(table: FlusherTable) -> None:
    table.user_append(0, [10_000, 10_001], in_model=True)
    table.generation(0, [patch(10_000, a=1)])
    found = explanation(table)
    assert found.fragments_scanned == 1
    assert [(f.replaced, f.in_place) for f in found.fragments] == [(1, 0)]


def test_an_unfinished_merge_comes_first(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10), a=5))
    merge_next(table.context(), LIMITS)
    found = explain(table.context(), LIMITS, None)
    assert isinstance(found, Refused)
    assert "not finished" in found.reason


def test_flushes_that_are_missing_are_not_rebuilt(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10), a=5))
    table.remove_files(table.flushed(0, 2))
    before = files(table)
    assert explanation(table).generations == {}
    assert files(table) == before
    table.round(LIMITS)
    table.check()


def test_a_damaged_region_is_named_beside_what_would_be_merged(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10), a=5))
    damaged = Path(table.uri) / table.flushed(0, 2).key
    damaged.write_bytes(damaged.read_bytes()[:-3])
    found = explanation(table)
    assert found.generations == {}
    assert list(found.damaged) == [table.regions[0].name]
    name = table.regions[0].name
    assert f"{name} is left where it is damaged: object_corrupt: _lancewal/" in explanation_text(found)
    table.generation(1, upserts(range(10), a=5))
    found = explanation(table)
    assert list(found.generations) == [table.regions[1].name]
    assert f"{name} is left where it is damaged: object_corrupt: _lancewal/" in explanation_text(found)


def test_the_command(table: FlusherTable, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(tree(table)))
    run = ["merge", "--dry-run", "--config", str(file)]
    version = table.dataset.version
    assert cli.run(run) == 0
    assert capsys.readouterr().out == f"version {version}: nothing waits for a merge\n"
    table.generation(0, [patch(id, a=-id) for id in range(4_000)])
    assert cli.run(run) == 0
    out = capsys.readouterr().out
    found = explain(table.context(), MergeLimits(), CompactionLimits())
    assert isinstance(found, MergeExplanation)
    assert out == explanation_text(found) + "\n"
    assert "4000 patched in place" in out
    assert cli.run([*run, "--output", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [f["strategy"] for f in shown["fragments"]] == ["columns"]
    assert table.dataset.version == version
    merge_next(table.context(), LIMITS)
    assert cli.run(run) == 0
    assert "is not finished yet" in capsys.readouterr().out
