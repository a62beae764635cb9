"""The harness of the merge benchmarks does what it says, on small tables."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from benchmarks.keyed_rows import Base, check
from benchmarks.merge_runs import Pair
from benchmarks.write_amplification import Written

ROWS = 20_000


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return Base(tmp_path_factory.mktemp("base"), ROWS)


def test_both_tables_hold_the_model_after_upserts(base: Base, tmp_path: Path) -> None:
    pair = Pair.of(base, tmp_path, 1)
    runs = pair.runs(500, 3)
    pair.check()
    assert len(runs.committed) == len(runs.peer) == 3
    assert all(0 < c < r for c, r in zip(runs.committed, runs.round, strict=True))
    # The warm-up's 100 inserts, then 50 a run.
    assert pair.upserts.model.sums.rows == ROWS + 100 + 3 * 50
    pair.ours.close()


def test_a_difference_is_found(base: Base, tmp_path: Path) -> None:
    pair = Pair.of(base, tmp_path, 2)
    pair.runs(500, 1)
    lance.dataset(str(pair.ours.path)).update({"b": "b + 0.25"}, where="id = 0")
    with pytest.raises(AssertionError, match="the model"):
        check(pair.ours.path, pair.upserts.model)
    pair.ours.close()


def test_a_base_is_kept_and_unharmed(base: Base, tmp_path: Path) -> None:
    pair = Pair.of(base, tmp_path, 3)
    pair.ours.close()
    again = Base(base.table.parent, ROWS)
    assert lance.dataset(str(again.table)).version == 1
    check(again.table, again.model())


def test_written_bytes_are_counted_once_by_kind_and_stay_counted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old.lance").write_bytes(b"x" * 100)
    written = Written(tmp_path)
    for name, size in (("data/new.lance", 5), ("_deletions/1.bin", 7), ("_lancewal/keys/run", 11), ("_lancewal/x", 13)):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"y" * size)
    written.look()
    (tmp_path / "_lancewal/keys/run").unlink()
    written.look()
    assert written.by_kind == {"data": 5, "deletions": 7, "key_index": 11, "other": 13}
    assert written.table == 23
