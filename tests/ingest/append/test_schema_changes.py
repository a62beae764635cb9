"""Changes of value schemas, as docs/how-to/with-a-schema-registry.md tells them: what each format makes of a record under the
next schema, before and after the command that the page names."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.settings.sections import ValueFormat
from lancewal_core.table.columns.changes import Added, Dropped, Renamed
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.contract import Column, Contract
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_ingest.decode.framed.protobuf.schema import message_of
from lancewal_kafka.records import Records
from tests.conformance.test_value_decoder import SCHEMAS, framed

FORMATS: tuple[ValueFormat, ...] = ("avro", "protobuf", "connect-json", "json-schema")
TYPED = FORMATS[:3]
Fields = Sequence[tuple[str, str, object]]
"""Name, type and value of each field; ``?`` after the type: it may be absent or null."""
_AVRO = {"int": "int", "long": "long", "float": "float", "double": "double", "string": "string"}
_PROTO = {"int": "int32", "long": "int64", "float": "float", "double": "double", "string": "string"}
_CONNECT = {"int": "int32", "long": "int64", "float": "float", "double": "double", "string": "string"}
BEFORE = {"id": "int64", "n": "int32", "f": "float32", "s": "string"}
ROW: Fields = [("id", "long", 1), ("n", "int", 2), ("f", "float", 0.5), ("s", "string?", "a")]


def value_of(format_: ValueFormat, fields: Fields) -> bytes:
    """A record as its producer writes it."""
    row = {name: value for name, _, value in fields}
    match format_:
        case "avro":
            schema = {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": name, "type": ["null", _AVRO[kind[:-1]]] if kind[-1] == "?" else _AVRO[kind]}
                    for name, kind, _ in fields
                ],
            }
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, row)
            return framed(WriterSchema("avro", json.dumps(schema)), out.getvalue())
        case "protobuf":
            lines = (
                f"{'optional ' if kind[-1] == '?' else ''}{_PROTO[kind.rstrip('?')]} {name} = {number};"
                for number, (name, kind, _) in enumerate(fields, 1)
            )
            text = WriterSchema("protobuf", f'syntax = "proto3"; message R {{ {" ".join(lines)} }}')
            return framed(text, b"\0" + GetMessageClass(message_of(text, (0,)))(**row).SerializeToString())
        case "connect-json":
            of = [
                {"field": name, "type": _CONNECT[kind.rstrip("?")], "optional": kind[-1] == "?"}
                for name, kind, _ in fields
            ]
            return json.dumps({"schema": {"type": "struct", "fields": of}, "payload": row}).encode()
        case _:
            return framed(WriterSchema("json-schema", "{}"), json.dumps(row).encode())


def contract_of(format_: ValueFormat, columns: dict[str, str] | None = None, **terms: Any) -> Contract:
    numbers = itertools.count()
    return Contract(
        format=2,
        table_uuid="t",
        topic="orders",
        topic_id="i",
        partitions=1,
        primary_key=("id",),
        region_key=("id",),
        start=(0,),
        columns=tuple(Column(name=n, type=t, field_ids=(next(numbers),)) for n, t in (columns or BEFORE).items()),
        value_format=format_,
        on_wrong_format="dead-letter",
        **terms,
    )


class Outcome(NamedTuple):
    row: dict[str, object] | None
    kind: str
    """Of the stop or the rejection; empty for a row."""
    stops: bool = False
    new: Mapping[str, pa.DataType] = MappingProxyType({})


def outcome(contract: Contract, fields: Fields) -> Outcome:
    value = value_of(contract.value_format, fields)
    records = Records([0], [0], [b"1"], [value], [None])
    consumed = Consumed(Region("orders", TopicId("i"), 0), Position(0), Position(1), records)
    (found,) = Preparer(contract, schemas=SCHEMAS).prepare_all([consumed])
    entry, letters, stop = found.outcome
    new = dict(found.new_fields)
    if stop is not None:
        return Outcome(None, stop.error.kind, True, new)
    if letters:
        return Outcome(None, letters[0].kind, False, new)
    assert entry is not None
    names = contract.rows.columns.names
    (row,) = entry.rows.to_pylist()
    return Outcome({name: row[name] for name in names}, "", False, new)


def altered(contract: Contract, *calls: Sequence[Any]) -> Contract:
    for number, call in enumerate(calls):
        contract = changed(contract, list(call), Surroundings(50 + 10 * number, {}), f"a{number}")
    return contract


WHOLE = {"id": 1, "n": 2, "f": 0.5, "s": "a"}


@pytest.mark.parametrize("format_", FORMATS)
def test_a_field_is_added(format_: ValueFormat) -> None:
    for kind in ("string?", "string"):
        more: Fields = [*ROW, ("note", kind, "new")]
        expected = ("column_unknown", True) if format_ in TYPED else ("unknown_column", False)
        contract = contract_of(format_)
        assert outcome(contract, more)[1:3] == expected
        assert outcome(altered(contract, [Added(("note",), pa.string())]), more).row == {**WHOLE, "note": "new"}
        assert outcome(contract_of(format_, on_unknown_column="ignore"), more).row == WHOLE
        if format_ in TYPED:
            assert outcome(contract_of(format_, on_unknown_column="add"), more).new == {"note": pa.string()}


@pytest.mark.parametrize("format_", FORMATS)
def test_a_field_is_left_out(format_: ValueFormat) -> None:
    assert outcome(contract_of(format_), ROW[:3]).row == {**WHOLE, "s": None}
    assert outcome(contract_of(format_), ROW[1:]).kind == "missing_key"


@pytest.mark.parametrize("format_", FORMATS)
def test_a_field_becomes_optional_or_required(format_: ValueFormat) -> None:
    contract = contract_of(format_)
    swapped: Fields = [ROW[0], ("n", "int?", 2), ROW[2], ("s", "string", "a")]
    assert outcome(contract, swapped).row == WHOLE
    assert outcome(contract, [ROW[0], ("n", "int?", None), *ROW[2:]]).row == {**WHOLE, "n": None}
    assert outcome(contract, [("id", "long?", None), *ROW[1:]]).kind == "missing_key"


@pytest.mark.parametrize("format_", FORMATS)
def test_a_field_is_renamed(format_: ValueFormat) -> None:
    renamed: Fields = [*ROW[:3], ("text", "string?", "a")]
    contract = contract_of(format_)
    assert outcome(contract, renamed).kind == ("column_unknown" if format_ in TYPED else "unknown_column")
    assert outcome(contract_of(format_, on_unknown_column="ignore"), renamed).row == {**WHOLE, "s": None}
    after = altered(contract, [Renamed(("s",), "text")])
    whole = {"text" if name == "s" else name: value for name, value in WHOLE.items()}
    assert [outcome(after, fields).row for fields in (ROW, renamed)] == [whole, whole]
    assert outcome(after, [*ROW, ("text", "string?", "b")]).kind == "duplicate_member"


@pytest.mark.parametrize("format_", FORMATS)
def test_a_field_gets_a_wider_type(format_: ValueFormat) -> None:
    contract = contract_of(format_)
    wider: Fields = [ROW[0], ("n", "long", 2), *ROW[2:]]
    large: Fields = [ROW[0], ("n", "long", 2**40), *ROW[2:]]
    assert outcome(contract, wider).row == WHOLE
    assert outcome(contract, large).kind == "range"
    double: Fields = [*ROW[:2], ("f", "double", 0.1), ROW[3]]
    found = outcome(contract, double)
    if format_ in TYPED:
        assert found.kind == "type"
    else:
        assert found.row == {**WHOLE, "f": pa.scalar(0.1, pa.float32()).as_py()}
    after = contract_of(format_, {**BEFORE, "n": "int64", "f": "float64"})
    assert outcome(after, large).row == {**WHOLE, "n": 2**40}
    assert outcome(after, double).row == {**WHOLE, "f": 0.1}
    assert outcome(after, ROW).row == WHOLE


@pytest.mark.parametrize("format_", FORMATS)
def test_a_field_gets_another_type(format_: ValueFormat) -> None:
    """The column of the former type gets another name, and a new one the name: old records have no place any more."""
    contract = contract_of(format_)
    other: Fields = [*ROW[:3], ("s", "long", 7)]
    assert outcome(contract, other)[1:3] == ("type", False)
    after = altered(contract, [Renamed(("s",), "s_text")], [Added(("s",), pa.int64())])
    assert outcome(after, other).row == {"id": 1, "n": 2, "f": 0.5, "s_text": None, "s": 7}
    assert outcome(after, ROW).kind == "type"
    beside = altered(contract, [Added(("s_number",), pa.int64())])
    both: Fields = [*ROW, ("s_number", "long", 7)]
    assert outcome(beside, both).row == {**WHOLE, "s_number": 7}
    dropped = altered(beside, [Dropped(("s",))])
    assert outcome(dropped, both).row == {"id": 1, "n": 2, "f": 0.5, "s_number": 7}
