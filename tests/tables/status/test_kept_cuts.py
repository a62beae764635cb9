"""Kept cuts in the status of a table: their names, and the bytes that they keep from being deleted."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pytest

from lancewal_core.cli.program import run
from lancewal_core.settings.load import Settings
from lancewal_tables.snapshots.make import make_snapshot
from lancewal_tables.status.status import table_status
from tests.support.pipeline import Pipeline
from tests.tables.cuts.lake import Lake

NAME = "shop.orders"


def files(data: lance.LanceDataset) -> dict[str, int]:
    """Sizes of a version's data files, by the file system."""
    folder = Path(data.uri)
    paths = [f"{file.path}" for fragment in data.get_fragments() for file in fragment.data_files()]
    return {path: next(folder.rglob(path)).stat().st_size for path in paths}


def held(table: Pipeline, snapshot: str) -> int:
    newest = lance.dataset(table.uri)
    kept = files(newest.checkout_version((snapshot, None))).items() - files(newest).items()
    return sum(size for _, size in kept)


def test_each_cut_is_named_with_what_it_holds(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Lake(tmp_path, seed=seed)
    table = lake.of[NAME]
    lake.produce(40)
    assert table_status(Settings(), table.uri).cuts == ()
    table.merge_all()
    first = lake.make("june", for_ms=86_400_000)
    lake.produce(20)
    second = lake.make("may")
    members = lake.members(NAME)
    make_snapshot(members[0].context, members[0].reads, "of-no-cut")
    assert [cut.nbytes for cut in table_status(Settings(), table.uri).cuts][:1] == [0]
    table.merge_all()
    lance.dataset(table.uri).optimize.compact_files()
    names = [cut.tables[NAME].snapshot or "" for cut in (first, second)]
    found = table_status(Settings(), table.uri).cuts
    assert [(cut.name, cut.snapshot) for cut in found] == list(zip(("june", "may"), names, strict=True))
    assert [cut.nbytes for cut in found] == [held(table, name) for name in names]
    assert all(cut.nbytes for cut in found)
    assert [cut.until_ms for cut in found] == [first.until_ms, None]
    assert run(["status", "-t", table.uri, "-o", "json"]) == 0
    assert [cut["name"] for cut in json.loads(capsys.readouterr().out)["cuts"]] == ["june", "may"]
    assert run(["status", "-t", table.uri]) == 0
    line = f"kept cut  may: {found[1].nbytes} bytes held by snapshot {names[1]}, until it is dropped"
    assert line in capsys.readouterr().out.splitlines()
    lake.close()
