"""Writer schemas as objects of a table."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from lancewal_core.errors import ObjectCorrupt, ObjectMissing, SchemaIdReused, StoreUnavailable, TooManySchemas
from lancewal_core.names import paths
from lancewal_core.names.ids import Making, Position, SchemaKey
from lancewal_core.names.words import is_schema_key
from lancewal_core.process.clock import SystemClock
from lancewal_core.store.object_store import Stored
from lancewal_core.wal import writer_schemas
from lancewal_core.wal.writer_schemas import SCHEMA_BYTES_MAX, StoredSchema, WriterSchema, WriterSchemas, stored_schema
from tests.twins.memory_store import MemoryStore

KEY = SchemaKey("id-7")
LONG = WriterSchema("avro", '"long"')
MAKING = Making("0a1b")


def ids() -> Callable[[], str]:
    numbers = count()
    return lambda: f"{next(numbers):08x}"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SystemClock())


def schemas(store: MemoryStore) -> WriterSchemas:
    return WriterSchemas(store, MAKING)


def test_what_the_registry_said_first_stays(store: MemoryStore) -> None:
    ours = schemas(store)
    assert ours.read(KEY) == ours.known(KEY) == ()
    (first,) = ours.put_first(KEY, LONG, SystemClock(), ids())
    assert first.writer == LONG
    assert (ours.known(KEY), ours.keys) == ((first,), (KEY,))
    assert schemas(store).read(KEY) == (first,)
    theirs = schemas(store)
    assert theirs.put_first(KEY, WriterSchema("avro", ' "long" '), SystemClock(), ids()) == (first,)
    for other in (WriterSchema("avro", '"int"'), WriterSchema("protobuf", '"long"'), None):
        with pytest.raises(SchemaIdReused) as caught:
            schemas(store).put_first(KEY, other, SystemClock(), ids())
        assert caught.value.where == {"schema": "id-7"}
        for advice in ("restarted empty, give it its old schemas back", "correct registry.url", "schema accept id-7"):
            assert advice in str(caught.value)


def test_an_unknown_schema_stays_unknown(store: MemoryStore) -> None:
    (unknown,) = schemas(store).put_first(KEY, None, SystemClock(), ids())
    assert unknown.writer is None
    assert schemas(store).put_first(KEY, LONG, SystemClock(), ids()) == (unknown,)


def test_a_later_version_is_read_when_it_is_asked_for(store: MemoryStore) -> None:
    first = schemas(store).put_first(KEY, LONG, SystemClock(), ids())
    ours = schemas(store)
    ours.read(KEY)
    second = stored_schema(WriterSchema("avro", '"int"'), "b", {3: Position(100)})
    key = paths.writer_schema_version(KEY, 2, MAKING)
    assert isinstance(store.put_if_absent(key, second.encode()), Stored)
    assert ours.read(KEY) == first
    assert ours.read(KEY, 2) == ours.known(KEY) == (*first, second)


def test_a_later_version_that_the_contract_names_must_be_there(store: MemoryStore) -> None:
    schemas(store).put_first(KEY, LONG, SystemClock(), ids())
    with pytest.raises(ObjectMissing, match=r"18446744073709551613\.json is missing"):
        schemas(store).read(KEY, 2)


def test_references_come_back_in_their_order(store: MemoryStore) -> None:
    schema = WriterSchema("protobuf", "message A {}", (("b.proto", "message B {}"), ("a.proto", "message C {}")))
    schemas(store).put_first(KEY, schema, SystemClock(), ids())
    (found,) = schemas(store).read(KEY)
    assert found.writer == schema
    turned = WriterSchema("protobuf", "message A {}", schema.references[::-1])
    assert not schema.same(turned)
    assert schema.same(schema)


@pytest.mark.parametrize("text", ["\0" * SCHEMA_BYTES_MAX, "é" * (SCHEMA_BYTES_MAX // 2)])
def test_a_schema_that_is_too_large_is_refused(store: MemoryStore, text: str) -> None:
    schemas(store).put_first(SchemaKey("id-1"), WriterSchema("avro", text), SystemClock(), ids())
    with pytest.raises(TooManySchemas, match="1048577 bytes"):
        schemas(store).put_first(KEY, WriterSchema("avro", text, (("", "y"),)), SystemClock(), ids())
    assert schemas(store).read(KEY) == ()


def test_a_table_has_so_many_schemas_at_most(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_schemas, "SCHEMAS_MAX", 2)
    ours = schemas(store)
    for number in (1, 2, 2):
        ours.put_first(SchemaKey(f"id-{number}"), LONG, SystemClock(), ids())
    for one in (ours, schemas(store)):
        with pytest.raises(TooManySchemas, match="2 stored schemas"):
            one.put_first(SchemaKey("id-3"), LONG, SystemClock(), ids())
        assert len(one.read(SchemaKey("id-2"))) == 1


def test_more_schemas_may_be_unknown(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_schemas, "SCHEMAS_MAX", 1)
    monkeypatch.setattr(writer_schemas, "MARKS_MAX", 2)
    ours = schemas(store)
    ours.put_first(SchemaKey("id-1"), LONG, SystemClock(), ids())
    ours.put_first(SchemaKey("id-2"), None, SystemClock(), ids())
    for one in (ours, schemas(store)):
        with pytest.raises(TooManySchemas, match="2 stored schemas"):
            one.put_first(SchemaKey("id-3"), None, SystemClock(), ids())


def test_a_store_without_a_verdict_puts_nothing_into_memory(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = schemas(store)

    def silent(key: str, data: bytes) -> Stored:
        raise StoreUnavailable("silent")

    monkeypatch.setattr(store, "put_if_absent", silent)
    clock = SystemClock()
    monkeypatch.setattr(clock, "sleep", lambda seconds: None)
    with pytest.raises(StoreUnavailable):
        ours.put_first(KEY, LONG, clock, ids())
    assert ours.known(KEY) == ()


def test_version_1_names_no_position() -> None:
    data = stored_schema(LONG, "a", {0: Position(1)}).encode()
    with pytest.raises(ObjectCorrupt, match="from the first record on"):
        StoredSchema.decode(data, paths.writer_schema_version(KEY, 1, None))
    assert StoredSchema.decode(data, paths.writer_schema_version(KEY, 2, None)).since == {"0": 1}


@pytest.mark.parametrize("text", ["id-1", "id-4294967295", "guid-0f8fad5b-d9cb-469f-a165-70867728950e"])
def test_keys_of_schemas(text: str) -> None:
    assert is_schema_key(text)


@pytest.mark.parametrize(
    "text",
    ["", "id-", "id-0", "id-01", "id-4294967296", "id--1", "id-\u0661", "7", "guid-0F8FAD5B-d9cb-469f-a165-70867728950e",
     "guid-", "id-1\n"],
)  # fmt: skip
def test_other_texts_are_no_keys_of_schemas(text: str) -> None:
    assert not is_schema_key(text)
