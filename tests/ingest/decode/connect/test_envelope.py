"""What is a value with a schema, in which text soever, and what is none; and what stays in memory of schemas."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.wal.writer_schemas import SCHEMA_BYTES_MAX
from lancewal_ingest.decode.connect import decoder as module
from lancewal_ingest.decode.connect.decoder import ConnectDecoder
from lancewal_ingest.decode.connect.schema import parse_schema
from lancewal_ingest.decode.framed.kept import TEXTS_BYTES_MAX, TEXTS_MAX
from lancewal_ingest.decode.json.strict import DEPTH_MAX
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.value_decoder import DecodedValues
from tests.ingest.decode.connect.cases import KEY, cells, decode, decoder, field, refusals, rows_of, struct, value

COLUMNS = {"c": pa.string()}
WHOLE = struct(KEY, field("c", "string"))
SCHEMA = json.dumps(WHOLE)
PAYLOAD = '{"id": 1, "c": "x"}'
GOOD = f'{{"schema": {SCHEMA}, "payload": {PAYLOAD}}}'


def one(text: str | bytes) -> Any:
    """The row of a value, or the kind of its refusal.  It is the same before and behind other values of its schema."""
    given = text if isinstance(text, bytes) else text.encode()
    alone = become(decode(decoder(COLUMNS), [given]))[0]
    among = decode(decoder(COLUMNS), [GOOD.encode(), given, GOOD.replace(" ", "").encode(), given])
    for place in (1, 3):
        assert become(among)[place] == alone
    return alone[0] if isinstance(alone, tuple) else alone


def become(found: DecodedValues) -> dict[int, Any]:
    return {**cells(found), **refusals(found)}


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace(" ", ""),
        GOOD.replace(" ", "\n\t "),
        f" {GOOD}\r\n ",
        f'{{"payload": {PAYLOAD}, "schema": {SCHEMA}}}',
        f'{{"\\u0073chema": {SCHEMA}, "payload": {PAYLOAD}}}',
        f'{{"schema": {SCHEMA}, "p\\u0061yload": {PAYLOAD}}}',
        f'{{"schema": {SCHEMA[:-1]}, "doc": "\\"payload\\": }}]"}}, "payload": {PAYLOAD}}}',
    ],
)
def test_both_members_in_any_text_are_a_row(text: str) -> None:
    assert one(text) == [1, "x"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "not_json"),
        ("null", "not_an_object"),
        ("[]", "not_an_object"),
        ("{}", "wrong_format"),
        (PAYLOAD, "wrong_format"),
        (f'{{"schema": {SCHEMA}}}', "wrong_format"),
        (f'{{"payload": {PAYLOAD}}}', "wrong_format"),
        (f'{{"schema": null, "payload": {PAYLOAD}}}', "wrong_format"),
        (f'{{"schema": "x", "payload": {PAYLOAD}}}', "wrong_format"),
        (f'{{"schema": {SCHEMA}, "payload": {PAYLOAD}, "more": 1}}', "wrong_format"),
        (f'{{"more": 1, "schema": {SCHEMA}, "payload": {PAYLOAD}}}', "wrong_format"),
        (f'{{"schema": {SCHEMA}, "more": 1, "payload": {PAYLOAD}}}', "wrong_format"),
        (f'{{"schema": {SCHEMA}, "payload": {PAYLOAD}, "payload": {PAYLOAD}}}', "duplicate_member"),
        (f'{{"schema": {SCHEMA}, "payload": {PAYLOAD}, "schema": {SCHEMA}}}', "duplicate_member"),
        (f'{{"schema": {SCHEMA}, "payload": null}}', "null_value"),
        (f'{{"schema": {SCHEMA}, "payload":{" " * 40}null }}', "null_value"),
        (f'{{"payload": null, "schema": {SCHEMA}}}', "null_value"),
        (f'{{"schema": {SCHEMA}, "payload": 1}}', "not_an_object"),
        (f'{{"schema": {SCHEMA}, "payload": []}}', "not_an_object"),
        (f'{{"schema": {SCHEMA}, "payload": }}', "not_json"),
        (f'{{"schema": {SCHEMA}, "payload": {PAYLOAD}', "not_json"),
        (f'{{"schema": {SCHEMA}, "payload": {PAYLOAD[:-1]}', "not_json"),
        (f'{{"schema": {SCHEMA}, "payload": {PAYLOAD}}}}}', "not_json"),
        (f'{{"schema": {SCHEMA}, "payload": {PAYLOAD}}} x', "not_json"),
        (f'{{"schema": {SCHEMA[:-1]}], "payload": {PAYLOAD}}}', "not_json"),
        (GOOD.replace('"x"', '"x', 1), "not_json"),
        (GOOD.replace("1", "NaN"), "not_json"),
        (GOOD.encode().replace(b'"x"', b'"\xff"'), "not_json"),
        (GOOD.encode().replace(b"string", b"str\xffng"), "not_json"),
        (f'{{"schema": {SCHEMA}, "payload": {{"id": 1, "c": "x", "d": 1}}}}', "malformed"),
        (f'{{"schema": {SCHEMA}, "payload": {{"id": 1, "c": "x", "c": "y"}}}}', "duplicate_member"),
        (f'{{"schema": {SCHEMA}, "payload": {{"id": 1, "c": {"[" * 70}{"]" * 70}}}}}', "too_deep"),
        (f'{{"schema": {"[" * 5000}', "not_json"),
        (f'{{"schema": {{"type": {"[" * 70}{"]" * 70}}}, "payload": {PAYLOAD}}}', "too_deep"),
        (f'{{"schema": {{"type": "struct", "type": "struct"}}, "payload": {PAYLOAD}}}', "duplicate_member"),
        (f'{{"payload": {PAYLOAD}, "schema": {{"type": "struct", "type": "struct"}}}}', "duplicate_member"),
        (f'{{"payload": {{"id": 1, "id": 2}}, "schema": {SCHEMA}}}', "duplicate_member"),
        (f'{{"payload": {{"id": 1, "c": {{"a": 1, "a": 2}}}}, "schema": {SCHEMA}}}', "duplicate_member"),
    ],
)
def test_anything_else_is_refused_whatever_was_seen_before(text: str | bytes, kind: str) -> None:
    if text == f'{{"schema": {"[" * 5000}':
        kind = "too_deep"
    assert one(text) == kind


def test_a_member_beside_both_is_named_in_the_letter_and_not_in_the_message() -> None:
    (refused,) = decode(decoder(COLUMNS), [GOOD[:-1].encode() + b', "more": 1}']).refused
    assert (refused.found, "more" in refused.message) == ("more", False)


def test_no_text_of_a_value_makes_its_row_outgrow_the_bound() -> None:
    columns = {"c": pa.list_(pa.float64())}
    whole = json.dumps(struct(KEY, field("c", "array", items={"type": "double"})))
    payload = '{"id": 1, "c": [' + ",".join("1" for _ in range(5000)) + "]}"
    for text in (
        f'{{"schema": {whole}, "p\\u0061yload": {payload}}}',
        f'{{"payload": {payload}, "schema": {whole}}}',
        f'{{"schema": {whole}, "payload": {payload}}}',
    ):
        of = decoder(columns)
        assert of.growth.each([text.encode()]).tolist()[0] >= 8 * 5000
        assert cells(decode(of, [text.encode()]))[0][1] == [1.0] * 5000


def test_a_schema_counts_nothing_for_the_row_that_its_value_becomes() -> None:
    of, given = decoder({"c": pa.list_(pa.float64())}), GOOD.replace("string", "array").encode()
    assert of.growth.each([given, given]).tolist()[0] < 10 * len(PAYLOAD)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({}, "unusable_schema"),
        ({"type": "int64"}, "unusable_schema"),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}, "unusable_schema"),
        ({"type": "struct"}, "unusable_schema"),
        ({"type": "struct", "fields": {}}, "unusable_schema"),
        (struct(), "missing_key"),
        (struct(field("c", "string")), "missing_key"),
        (struct(KEY, KEY), "unusable_schema"),
        (struct(KEY, {"type": "string"}), "unusable_schema"),
        (struct(KEY, "c"), "unusable_schema"),  # type: ignore[arg-type] # a wrong one
        (struct(KEY, field("c", "int128")), "unusable_schema"),
        (struct(KEY, field("c", "array")), "unusable_schema"),
        (struct(KEY, field("c", "map", keys={"type": "string"})), "unusable_schema"),
        (struct(KEY, field("c", "int32")), "type"),
        (struct(KEY, field("d", "string")), "unknown_column"),
    ],
    ids=str,
)
def test_a_schema_that_cannot_fill_the_columns_makes_its_values_bad(schema: object, kind: str) -> None:
    assert one(json.dumps({"schema": schema, "payload": {"id": 1, "c": "x"}})) == kind


def test_a_schema_may_be_long_and_not_longer_than_a_stored_one() -> None:
    docs = field("c", "string", doc="y" * 100_000)
    assert cells(decode(decoder(COLUMNS), [value(struct(KEY, docs), {"id": 1, "c": "x"})])) == {0: [1, "x"]}
    docs = field("c", "string", doc="y" * SCHEMA_BYTES_MAX)
    assert (
        refusals(decode(decoder(COLUMNS), [value(struct(KEY, docs), {"id": 1, "c": "x"})]))[0][0] == "unusable_schema"
    )


def test_structs_nest_as_deep_as_json_may() -> None:
    def nested(levels: int) -> tuple[pa.DataType, dict[str, Any], Any]:
        column, schema, given = pa.string(), {"type": "string"}, "x"
        for _ in range(levels):
            column, given = pa.struct([("a", column)]), {"a": given}  # type: ignore[assignment] # grows
            schema = {"type": "struct", "fields": [{"field": "a", **schema}]}  # type: ignore[dict-item] # likewise
        return column, schema, given

    column, schema, given = nested(15)
    found = decode(decoder({"c": column}), [value(struct(KEY, {**schema, "field": "c"}), {"id": 1, "c": given})])
    assert cells(found) == {0: [1, given]}
    _, schema, given = nested(DEPTH_MAX)
    found = decode(decoder(COLUMNS), [value(struct(KEY, {**schema, "field": "c"}), {"id": 1, "c": given})])
    assert refusals(found)[0][0] == "too_deep"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The text of each schema that was read."""
    seen: list[bytes] = []

    def counted(text: bytes, naming: Naming) -> Any:
        seen.append(text)
        return parse_schema(text, naming)

    monkeypatch.setattr(module, "parse_schema", counted)
    return seen


def test_a_schema_is_read_once_whatever_its_values_look_like(parsed: list[bytes]) -> None:
    of = decoder(COLUMNS)
    texts = [GOOD, f" {GOOD}", f'{{"payload": {PAYLOAD}, "schema": {SCHEMA}}}', GOOD]
    for _ in range(3):
        assert decode(of, [text.encode() for text in texts * 50]).refused == []
    assert parsed == [SCHEMA.encode()]


def test_what_stays_in_memory_of_schemas_is_limited(parsed: list[bytes]) -> None:
    """Results are the same, also where all values have schemas of their own."""
    of = decoder(COLUMNS)

    def values(count: int, length: int) -> list[bytes]:
        docs = [struct(KEY, field("c", "string", doc=f"{n}".rjust(length))) for n in range(count)]
        return [value(one, {"id": n, "c": str(n)}) for n, one in enumerate(docs)]

    for count, length in ((3 * TEXTS_MAX, 4), (12, SCHEMA_BYTES_MAX // 2)):
        given = values(count, length)
        for _ in range(2):
            assert cells(decode(of, [*given, *given[::-1]])) == {
                place: [n, str(n)] for place, n in enumerate([*range(count), *reversed(range(count))])
            }
            for kept in (of._known, of._heads._known):
                assert len(kept) <= TEXTS_MAX
                assert kept.nbytes <= TEXTS_BYTES_MAX
                assert len(kept.lengths) <= len(kept)


def test_other_formats_are_named() -> None:
    of = ConnectDecoder(rows_of(COLUMNS))
    (refused,) = of.decode([framed := b"\0\0\0\0\7abc"], np.zeros(1, np.uint8)).refused
    assert refused.kind == "not_json"
    assert "Confluent's wire format" in str(of.other_format(framed, None))
    assert "__value_schema_id" in str(of.other_format(b"x", [("__value_schema_id", b"")]))
    assert of.other_format(b"{}", None) is None
