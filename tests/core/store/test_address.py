"""Where a table lies: Lance and lancewal take one address for one place, or it is refused.  Lance is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSettings
from lancewal_core.settings.load import load_settings
from lancewal_core.store.obstore import open_store
from lancewal_core.store.place import place_of
from lancewal_core.table.lance.table import LanceTable

TAKEN: dict[str, Callable[[str], object]] = {
    "settings": lambda uri: load_settings(None, {"LANCEWAL_TABLE__URI": uri}),
    "store": open_store,
    "Lance": LanceTable,
}


@pytest.mark.parametrize(
    "uri",
    [
        "t",
        "./u/../t",
        "a b",
        "a%20b",
        "a?b#c",
        "u/~/t",
        "~t",
        "t ",
        "a//b/",
        "{}/t",
        "file://{}/t",
        "file:{}/t",
        "FILE://{}/a b",
        "file://localhost{}/t",
    ],
)
def test_a_table_is_where_lance_puts_it(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "u").mkdir()
    uri = uri.format(tmp_path)
    lance.write_dataset(pa.table({"id": [1]}), uri)
    assert (Path(place_of(uri)) / "_versions").is_dir()
    assert open_store(uri).list("_versions/")
    load_settings(None, {"LANCEWAL_TABLE__URI": uri})
    assert LanceTable(uri).newest().version == 1


@pytest.mark.parametrize("how", TAKEN)
@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("~/t", "write the whole path"),
        ("~", "write the whole path"),
        ("file://t", "expected file:///"),
        ("file://a/t", "expected file:///"),
        ("file:t", "expected file:///"),
        ("file://{}/a%20b", "expected file:///"),
        ("file://{}/a?b", "expected file:///"),
        ("file://{}/a#b", "expected file:///"),
        ("s3://", "names no bucket"),
        ("s3:///t", "names no bucket"),
        ("s3:/bucket/t", "names no bucket"),
        ("gs://bucket/t", "expected a local path, file:// or s3://"),
        ("s3://bucket/a%20b/t", "%20"),
        ("s3://bucket/a%2fb", "%2f"),
        ("s3://bucket/t%ff", "%ff"),
        ("s3://bucket/a?b/t", "without"),
        ("s3://bucket/a#b/t", "without"),
        ("s3://bucket/t?versionId=1", "without"),
        ("s3://bucket/a//t", "without"),
        ("s3://bucket//t", "without"),
        ("s3://bucket/./t", "without"),
        ("s3://bucket/a/../t", "without"),
        ("s3://bucket/a/..", "without"),
        ("s3://bucket/t ", "space at its end"),
        ("file://{}/t ", "space at its end"),
        ("s3://bucket/a\ufffeb", "character"),
        ("s3://bucket/a\tb", "character"),
        ("s3://bucket/a\x01b", "character"),
        ("{}/a\tb", "character"),
        ("{}/a\nb", "character"),
        ("{}/a\x7fb", "character"),
        ("{}/a\udcffb", "character"),
        ("file://{}/a\nb", "character"),
    ],
)
def test_one_that_names_no_place_or_two_is_refused(
    uri: str, says: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSettings, match=says):
        TAKEN[how](uri.format(tmp_path))
    assert not [*tmp_path.iterdir()]
