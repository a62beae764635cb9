"""Values by the versions of a schema that count, their weights, and the columns that patches name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.names.ids import SchemaKey
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.wal.writer_schemas import StoredSchema, WriterSchema, stored_schema
from lancewal_ingest.decode.avro.decoder import AvroFormat
from lancewal_ingest.decode.framed.decoder import NOTHING_ACCEPTED, FramedDecoder
from lancewal_ingest.decode.framed.kept import TEXTS_BYTES_MAX
from lancewal_ingest.decode.naming import PLAIN, Names, Naming
from lancewal_ingest.decode.value_decoder import DecodedValues
from tests.ingest.decode.avro.cases import record, written

SEVEN = SchemaKey("id-7")
ROWS = RowSchema(pa.schema([("id", pa.int64()), ("s", pa.string())]), primary_key=("id",), region_key=("id",))
NAMES = Names({"id": None, "s": None}, former={"old": "s"}, dropped=frozenset({"gone"}))


class Known:
    """Versions of schema 7, all read."""

    asked_first = False

    def __init__(self, *versions: object) -> None:
        self._versions = tuple(stored_schema(WriterSchema("avro", json.dumps(one)), "a") for one in versions)

    def known(self, key: SchemaKey) -> Sequence[StoredSchema]:
        return self._versions

    def read(self, key: SchemaKey, at_least: int = 1) -> Sequence[StoredSchema]:
        return self._versions


def decoder(known: Known, naming: Naming = PLAIN, count: int = 1) -> FramedDecoder:
    accepted: Mapping[str, int] = NOTHING_ACCEPTED if count == 1 else {SEVEN: count}
    return FramedDecoder(AvroFormat(ROWS, naming), ROWS, naming, known, accepted)


def of_seven(avro: object, row: dict[str, object]) -> bytes:
    return b"\0\0\0\0\7" + written(avro, [row])[0]


def patched(avro: object, row: dict[str, object], fields: bytes, naming: Naming) -> DecodedValues:
    headers = {"lancewal.fields": pa.array([fields], pa.binary())}
    return decoder(Known(avro), naming).decode([of_seven(avro, row)], np.array([Op.PATCH], np.uint8), headers)


def test_one_schema_before_payloads_and_in_headers() -> None:
    """Values of one schema are decoded together, in the order in which they came."""
    avro = record([("id", "long"), ("s", "string")])
    rows: list[dict[str, object]] = [{"id": n, "s": "s" * n} for n in range(6)]
    frame = b"\0\0\0\0\7"
    framed = [frame + data for data in written(avro, rows)]
    values = [value[5:] if place < 4 else value for place, value in enumerate(framed)]
    headers = {"__value_schema_id": pa.array([frame if place < 4 else None for place in range(6)], pa.binary())}
    found = decoder(Known(avro)).decode(values, np.zeros(6, np.uint8), headers)
    assert not found.refused
    got = {
        index: row
        for part in found.parts
        for index, row in zip(
            part.indexes.tolist(), pa.table(list(part.columns), names=["id", "s"]).to_pylist(), strict=True
        )
    }
    assert got == dict(enumerate(rows))


def test_decoders_of_the_schemas_that_were_used_last_stay_in_memory() -> None:
    """A topic may name any number of schemas.  One that comes again and again is read once."""
    often, seldom = SEVEN, [SchemaKey(f"id-{number}") for number in range(8, 8 + 40)]
    avro = {key: {**record([("id", "long")]), "doc": key.rjust(1 << 17)} for key in (often, *seldom)}
    known = Mock(read=lambda key, at_least=1: Known(avro[key]).read(key))
    format_ = AvroFormat(ROWS, PLAIN)
    made = Mock(wraps=format_.decoder)
    format_.decoder = made  # type: ignore[method-assign] # the same one, counted
    of = FramedDecoder(format_, ROWS, PLAIN, known)
    values = list[bytes]()
    for number, key in enumerate(seldom):
        values = [b"\0" + int(one[3:]).to_bytes(4) + written(avro[one], [{"id": number}])[0] for one in (often, key)]
        found = of.decode(values, np.full(2, Op.UPSERT, np.uint8))
        assert [part.columns[0].to_pylist() for part in found.parts] == [[number]] * 2
        assert 0 < of._made.nbytes <= TEXTS_BYTES_MAX
    assert made.call_count == 1 + len(seldom)
    of.decode(values, np.full(2, Op.UPSERT, np.uint8))
    assert made.call_count == 1 + len(seldom)


def test_a_weight_is_that_of_the_version_that_takes_most() -> None:
    symbols = ["a" * 1000, "b"]
    large = record([("id", "long"), ("s", {"type": "enum", "name": "e", "symbols": symbols})])
    small, value = record([("id", "long")]), of_seven(large, {"id": 1, "s": symbols[0]})
    (alone,) = decoder(Known(large)).growth.each([value])
    assert alone >= 1000
    assert decoder(Known(large, small), count=2).growth.each([value]) >= alone
    assert decoder(Known(large), count=2).growth.each([value]) == 64 * len(value)


@pytest.mark.parametrize("fields", [b"id,old", b"old", b"old,gone"])
def test_a_patch_may_name_a_column_by_a_former_name(fields: bytes) -> None:
    avro = record([("id", "long"), ("old", "string"), ("gone", "string")])
    found = patched(avro, {"id": 1, "old": "a", "gone": ""}, fields, Naming(NAMES))
    assert found.refused == []
    assert [column.to_pylist() for column in found.parts[0].columns] == [[1], ["a"]]


def test_names_that_are_passed_over_give_a_patch_no_column() -> None:
    avro = record([("id", "long"), ("s", "string"), ("gone", "string")])
    found = patched(avro, {"id": 1, "s": "a", "gone": ""}, b"gone", Naming(NAMES))
    assert [column.to_pylist() for column in found.parts[0].columns] == [[1], [None]]
    (refused,) = patched(avro, {"id": 1, "s": "a", "gone": ""}, b"s,other", Naming(NAMES)).refused
    assert refused.kind == "patch_fields"


@pytest.mark.parametrize("header", ["apicurio.value.globalId", "apicurio.value.contentId"])
def test_a_body_whose_id_is_in_a_header_of_another_form_is_no_frame(header: str) -> None:
    """The body begins as a frame does, and the rest of it is a row of that schema: only the header tells."""
    avro = record([("id", "long"), ("s", "string")])
    value, framed = of_seven(avro, {"id": 1, "s": "a"}), of_seven(avro, {"id": 2, "s": "b"})
    ids = pa.array([bytes(7) + b"\1", None, bytes(7) + b"\1"], pa.binary())
    ours = decoder(Known(avro))
    assert header in ours.headers
    headers = {header: ids, "__value_schema_id": pa.array([None, None, value[:5]], pa.binary())}
    values = [value, framed, value[5:]]
    found = ours.decode(values, np.zeros(3, np.uint8), headers)
    assert [(one.place, one.kind) for one in found.refused] == [(0, "wrong_format")]
    assert [part.columns[0].to_pylist() for part in found.parts] == [[2, 1]]
    assert [indexes.tolist() for _, indexes in ours.schemas_of(values, headers)] == [[1, 2]]
    message = ours.other_format(value, [(header, b"")])
    assert message is not None
    assert header in message
    assert "apicurio.registry.use-id=contentId" in message
