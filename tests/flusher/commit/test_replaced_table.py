"""A merge whose table is deleted right before its commit, and perhaps made anew by another program."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest

from lancewal_core.errors import TableMissing, TableReplaced
from lancewal_core.names.ids import Making
from lancewal_flusher.commit import send
from lancewal_flusher.context import FlusherContext
from tests.support.pipeline import Pipeline, by_key


def pipeline(folder: Path, seed: int, merges: int) -> Pipeline:
    made = Pipeline(folder, seed=seed, seal_rows=20, batch=15, partitions=2, making=Making(f"{seed:016x}"))
    for _ in range(merges):
        made.produce(30)
        made.merge_all()
    return made


@pytest.mark.parametrize("merges", [None, 1, 3, 5])
def test_a_merge_does_not_land_in_another_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merges: int | None
) -> None:
    """The other table has had fewer merges, as many, or more; None: there is no other one."""
    table = pipeline(tmp_path / "orders", 1, 3)
    other = None if merges is None else pipeline(tmp_path / "other", 2, merges)
    if other is not None:
        other.close()
    table.produce(30)
    table.ingest()
    table.hand_over()
    checkpoint = send.checkpoint

    def replaced(context: FlusherContext, version: int) -> None:
        checkpoint(context, version)  # type: ignore[arg-type] # what it was given
        shutil.rmtree(table.uri)
        if other is not None:
            shutil.copytree(other.uri, table.uri)

    monkeypatch.setattr(send, "checkpoint", replaced)
    with pytest.raises(TableMissing if other is None else TableReplaced):
        table.merge()
    if other is None:
        assert not Path(table.uri).exists()
        return
    there, meant = lance.dataset(table.uri), lance.dataset(other.uri)
    assert there.version == meant.version
    assert by_key(there.to_table()) == by_key(meant.to_table())
