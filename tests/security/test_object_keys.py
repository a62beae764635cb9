"""No name from outside leads out of the table's folder: not a topic's, an id's, a log's, nor one that is stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lancewal_core.errors import InvalidInput, LancewalError, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, Page, Region, Sequence, TopicId
from lancewal_core.names.paths import FlushFile
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import decode_contract

HOSTILE = (
    "", ".", "..", "../x", "..\\x", "a/b", "/etc/passwd", "a/../../b", "%2e%2e", "%2e%2e%2fx", "..%2f", "a\x00b", "a\nb",
    "a b",
    "é",
    "\u2025", "\uff0e\uff0e", "\u202egnp", "\ud800", "x" * 250, "x\u0000", "C:\\x", "~", "*", "?", "#", "s3://b", "a\r\n",
)  # fmt: skip
ORDINARY = Region("orders", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 3)
BUILDERS: dict[str, Callable[[str], str]] = {
    "topic": lambda name: paths.page_version(Page(name, TopicId("t"), 0, None), 1),
    "topic id": lambda name: paths.history_page(Region("t", TopicId(name), 0), Generation(1), None),
    "log": lambda name: paths.wal_segment(LogId(name), Sequence(0)),
    "flush": lambda name: paths.flush_file(name, FlushFile.MANIFEST),
    "probe": paths.probe,
}


@pytest.mark.parametrize("part", BUILDERS)
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_in_no_key(part: str, name: str) -> None:
    if (part, name) in {("topic id", "x" * 250), ("log", "x" * 250), ("probe", "x" * 250), ("flush", "x" * 250)}:
        # Long names stay below their folder; whether it takes them is for the store to say.
        assert BUILDERS[part](name).startswith(paths.ROOT)
        return
    with pytest.raises(InvalidInput):
        BUILDERS[part](name)


@pytest.mark.parametrize("partition", [-1, 2**31, 2**64])
def test_a_partition_is_a_kafka_partition(partition: int) -> None:
    with pytest.raises(InvalidInput):
        paths.region_prefix(Region("t", TopicId("t"), partition), None)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_what_is_stored_under_a_hostile_name_is_passed_over(name: str) -> None:
    """A listing may show it; no parser takes it for one of ours."""
    index = paths.page_version(Page.of(ORDINARY, 1, None), 1)
    for key in (
        index.replace("orders", name),
        index.replace("AAAAAAAAQACAAAAAAAAAAQ", name),
        paths.wal_segment(LogId("log"), Sequence(1)).replace("/log/", f"/{name}/"),
        paths.contract_version(1, None) + name,
    ):
        if key == index or (name == "x" * 250 and "orders" in key) or (len(name) == 250 and "/wal/" in key):
            continue
        parsers = (paths.parse_page_version, paths.parse_wal_segment, paths.parse_contract_version)
        assert [parse(key) for parse in parsers] == [None, None, None] or key == paths.contract_version(1, None)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_contract_names_no_hostile_topic(name: str) -> None:
    content = {
        "table_uuid": "u", "topic": name, "topic_id": "t", "partitions": 1, "primary_key": ["k"], "region_key": ["k"],
        "start": [0], "columns": [{"name": "k", "type": "int64", "field_ids": [0]}],
    }  # fmt: skip
    key = paths.contract_version(1, None)
    for changed in (content, {**content, "topic": "t", "topic_id": name}):
        if name == "x" * 250 and changed["topic"] == "t":
            continue
        with pytest.raises(ObjectCorrupt):
            decode_contract(json.dumps(changed).encode(), key)


def test_a_store_never_leaves_its_folder(tmp_path: Path) -> None:
    """The last line of defence: a key that got through all others."""
    (tmp_path / "outside").write_bytes(b"secret")
    (tmp_path / "table").mkdir()
    store = open_store(str(tmp_path / "table"))
    before = sorted(tmp_path.rglob("*"))
    for key in ("../outside", "a/../../outside", "/../outside", "%2e%2e/outside", "..", str(tmp_path / "outside")):
        try:
            assert store.get(key) is None
        except (LancewalError, ValueError):  # refused before it is looked up
            continue
        assert (tmp_path / "outside").read_bytes() == b"secret"
    assert sorted(tmp_path.rglob("*")) == before
