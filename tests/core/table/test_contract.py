"""The contract: what it says stays what it says, and what it does not know it does not read."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from lancewal_core.errors import (
    FormatUnknown,
    InvalidSchema,
    NotALancewalTable,
    ObjectCorrupt,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Making, Region, TopicId
from lancewal_core.table.contract import (
    Column,
    Contract,
    WrittenContracts,
    column_texts,
    decode_contract,
    encode_contract,
    read_contract,
    read_contract_version,
)
from tests.support.scripted import ManualClock, ScriptedStore

GIVEN: dict[str, Any] = {
    "table_uuid": "uuid-1",
    "topic": "orders",
    "topic_id": "topic-id-1",
    "partitions": 3,
    "primary_key": ("country", "id"),
    "region_key": ("id",),
    "start": (5, -1),
    "columns": (
        Column(name="id", type="int64", field_ids=(0,)),
        Column(name="country", type="string", field_ids=(1,)),
        Column(name="tags", type="list<string>", field_ids=(2, 3)),
    ),
}
CONTRACT = Contract(**GIVEN)


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore(ManualClock())


def put(store: ScriptedStore, contract: Contract) -> None:
    store.plain.put_if_absent(paths.contract_version(contract.version, None), encode_contract(contract))


def test_what_follows_from_it() -> None:
    assert CONTRACT.regions == tuple(Region("orders", TopicId("topic-id-1"), p) for p in range(3))
    assert CONTRACT.rows.table == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("country", pa.string(), nullable=False),
            pa.field("tags", pa.list_(pa.string())),
        ]
    )
    assert (CONTRACT.rows.primary_key, CONTRACT.rows.region_key) == (("country", "id"), ("id",))
    assert CONTRACT.field_ids == (0, 1, 2, 3)


def test_starts() -> None:
    assert [CONTRACT.start_of(p) for p in range(3)] == [5, None, 0]


def test_the_text_survives() -> None:
    contract = Contract(
        **GIVEN, version=7, patches=False, record_bytes_max=5, history_window_s=0, grace_s=1, altered_at=(1, 2)
    )
    assert decode_contract(encode_contract(contract), "there") == contract


def test_columns_as_text() -> None:
    assert column_texts(CONTRACT.rows.columns) == {"id": "int64", "country": "string", "tags": "list<string>"}
    with pytest.raises(InvalidSchema):
        column_texts(pa.schema([("a", pa.string_view())]))


def test_it_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        CONTRACT.partitions = 4


def changed(**changes: Any) -> bytes:
    content = json.loads(encode_contract(CONTRACT))
    return json.dumps({**content, **changes}).encode()


def test_a_later_format_is_refused_by_number() -> None:
    with pytest.raises(FormatUnknown, match="format 3 is newer than 2"):
        decode_contract(changed(format=3, something="new"), "there")


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "JSON"),
        (b"[]", "object"),
        (encode_contract(CONTRACT)[:-5], "JSON"),
        (changed(surprise=1), "surprise"),
        (changed(partitions=0), "partitions"),
        (changed(version=0), "version"),
        (changed(fold_version=2), "fold_version"),
        (changed(key_format="other"), "key_format"),
        (changed(key_format="bytes"), "format.key is bytes"),
        (changed(dead_letter_topic="dead\nletters"), "dead_letter_topic"),
        (changed(dead_letter_topic=CONTRACT.topic), "would come back"),
        (changed(region_key=[]), "region_key is empty"),
        (changed(columns=[{"name": "id"}]), "columns"),
        (changed(format="1.5"), "format"),
    ],
)
def test_anything_else_is_corrupt_and_named(data: bytes, place: str) -> None:
    with pytest.raises(ObjectCorrupt, match=place) as caught:
        decode_contract(data, "there")
    assert caught.value.where == {"object": "there"}


def test_a_table_without_one(store: ScriptedStore) -> None:
    with pytest.raises(NotALancewalTable, match=r"s3://bucket/table.*lancewal table create"):
        read_contract(store, "s3://bucket/table")


def test_the_newest_is_read_and_each_version_stays(store: ScriptedStore) -> None:
    versions = [CONTRACT.model_copy(update={"version": v, "partitions": v + 2}) for v in range(1, 12)]
    for contract in versions:
        put(store, contract)
    assert read_contract(store, "t") == versions[-1]
    assert [read_contract_version(store, versions[-1], v) for v in range(1, 12)] == versions
    with pytest.raises(ObjectCorrupt, match="WAL entries may name this version"):
        read_contract_version(store, versions[-1], 12)


@pytest.mark.parametrize(("newest", "listings"), [(1, 0), (2, 0), (3, 1), (7, 1)])
def test_a_contract_that_is_hardly_altered_is_read_without_a_listing(
    store: ScriptedStore, newest: int, listings: int
) -> None:
    """Every table that ingest has begun on has version 2."""
    versions = [CONTRACT.model_copy(update={"version": v, "making": Making("m")}) for v in range(1, newest + 1)]
    for contract in versions:
        store.plain.put_if_absent(paths.contract_version(contract.version, contract.making), encode_contract(contract))
    assert read_contract(store, "t") == versions[-1]
    assert [act for act, _ in store.calls].count("list") == listings


def test_former_versions_are_read_once_and_no_row_names_them(store: ScriptedStore) -> None:
    versions = [CONTRACT.model_copy(update={"version": v, "partitions": v + 2}) for v in range(1, 5)]
    for contract in versions:
        put(store, contract)
    written = WrittenContracts(store)
    assert written.of(versions[-1], 2) == versions[1]
    store.calls.clear()
    for _ in range(2):
        assert written.up_to(versions[-1]) == versions
    assert [act for act, _ in store.calls] == ["get"] * 2
    assert written.up_to(versions[0]) == versions[:1]
    assert written.known == (versions[1],)
