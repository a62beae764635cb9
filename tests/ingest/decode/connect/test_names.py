"""Names of fields: present, former, dropped and unknown ones; columns without a field; patches and deletes."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lancewal_core.rows.schema import Op
from lancewal_ingest.decode.connect.decoder import ConnectDecoder
from lancewal_ingest.decode.naming import PLAIN, Names, Naming, OtherName
from tests.ingest.decode.connect.cases import (
    KEY,
    Schema,
    cells,
    decode,
    decoder,
    field,
    refusals,
    rows_of,
    struct,
    value,
)

INNER = pa.struct([("x", pa.int64()), ("y", pa.string())])
COLUMNS = {"s": pa.string(), "n": pa.int32(), "i": pa.list_(INNER)}
NAMES = Names(
    {"id": None, "s": None, "n": None, "i": Names({"x": None, "y": None}, {"why": "y"}, frozenset({"z"}))},
    former={"old": "s"},
    dropped=frozenset({"gone"}),
)
ITEMS = {
    "type": "struct",
    "optional": True,
    "fields": [field("x", "int32"), field("why", "string"), field("z", "array", items={"type": "int8"})],
}


def test_former_and_dropped_names_count_and_others_of_the_contract_change_nothing() -> None:
    whole = struct(field("old", "string"), KEY, field("gone", "map", keys={"type": "int8"}, values={"type": "int8"}),
                   field("i", "array", items=ITEMS))  # fmt: skip
    payloads = [
        {"old": "a", "id": 1, "gone": [[1, 2]], "i": [{"x": 1, "why": "w", "z": [1]}, None]},
        {"old": None, "id": 2, "gone": None, "i": []},
    ]
    found = decode(decoder(COLUMNS, Naming(NAMES)), [value(whole, one) for one in payloads])
    assert cells(found) == {0: [1, "a", None, [{"x": 1, "y": "w"}, None]], 1: [2, None, None, []]}
    assert found.other_names == {
        OtherName("former", "old"): 2,
        OtherName("dropped", "gone"): 2,
        OtherName("former", "i[].why"): 2,
        OtherName("dropped", "i[].z"): 2,
    }


def test_a_member_that_the_schema_has_not_is_refused_although_the_contract_knows_it() -> None:
    of = decoder(COLUMNS, Naming(Names({**NAMES.present}, NAMES.former, NAMES.dropped, ignores=True)))
    whole = struct(KEY, field("s", "string"))
    found = decode(
        of, [value(whole, {"id": n, **more}) for n, more in enumerate([{}, {"gone": 1}, {"n": 1}, {"u": 1}])]
    )
    assert cells(found) == {0: [0, None, None, None]}
    assert {kind for kind, _ in refusals(found).values()} == {"malformed"}


def test_an_ignored_field_is_passed_over_and_counted() -> None:
    of = decoder(COLUMNS, Naming(Names(NAMES.present, ignores=True)))
    found = decode(of, [value(struct(KEY, field("u", "double")), {"id": 1, "u": 1.5})])
    assert cells(found) == {0: [1, None, None, None]}
    assert found.other_names == {OtherName("unknown", "u"): 1}


@pytest.mark.parametrize("held", [INNER, pa.list_(INNER)], ids=["struct", "list"])
@pytest.mark.parametrize("passed", ["top", "within"])
def test_a_struct_that_the_schema_lacks_is_null_beside_fields_that_are_passed_over(
    passed: str, held: pa.DataType
) -> None:
    names = Names({"x": None, "y": None}, ignores=True)
    naming = Naming(Names({"id": None, "c": Names({"m": None, "n": names}, ignores=True)}, ignores=True))
    top, within = ([field("u", "int8")], []) if passed == "top" else ([], [field("u", "int8")])
    whole = struct(KEY, field("c", "struct", fields=[field("m", "double"), *within]), *top)
    cell: dict[str, object] = {"m": 1.5, **({"u": 1} if within else {})}
    payloads = [{"id": 0, "c": cell}, {"id": 1, "c": None}, {"id": "bad"}]
    for given in (payloads, payloads[:2]):
        of = decoder({"c": pa.struct([("m", pa.float64()), ("n", held)])}, naming)
        found = decode(of, [value(whole, one) for one in given])
        assert cells(found) == {0: [0, {"m": 1.5, "n": None}], 1: [1, None]}


@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize("within", [False, True])
def test_a_name_that_is_no_unicode_makes_its_schema_unusable(within: bool, ignores: bool) -> None:
    odd = field("\ud800", "int8")
    fields = [field("u", "array", items={"type": "struct", "fields": [odd]}) if within else odd]
    naming = Naming(Names({"id": None, "c": None}, ignores=True)) if ignores else PLAIN
    given = json.dumps({"schema": struct(KEY, *fields), "payload": {"id": 1}}).encode()
    found = decode(decoder({"c": pa.string()}, naming), [given])
    assert refusals(found)[0][0] == "unusable_schema"
    assert found.new_fields == {}


def test_unknown_fields_refuse_their_values_and_say_which_columns_could_be_added() -> None:
    fields: dict[str, tuple[Schema, pa.DataType | None]] = {
        "a": ({"type": "int8"}, pa.int8()),
        "b": ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, pa.timestamp("ms", "UTC")),
        "c": ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, pa.timestamp("us")),
        "d": ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, pa.timestamp("us", "UTC")),
        "e": (
            {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
            pa.decimal128(38, 2),
        ),
        "f": ({"type": "array", "items": {"type": "float"}}, pa.list_(pa.float32())),
        "g": ({"type": "string", "name": "io.debezium.data.Uuid"}, pa.uuid()),
        "h": ({"type": "struct", "fields": [field("x", "int16")]}, pa.struct([("x", pa.int16())])),
        "j": (
            {"type": "map", "keys": {"type": "string"}, "values": {"type": "bytes"}},
            pa.map_(pa.string(), pa.binary()),
        ),
        "k": ({"type": "map", "keys": {"type": "int8"}, "values": {"type": "bytes"}}, None),
        "l": ({"type": "struct", "fields": []}, None),
        "m": ({"type": "int64", "name": "io.debezium.time.MicroDuration"}, pa.duration("us")),
        "o": (
            {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "-2"}},
            None,
        ),
    }
    whole = struct(KEY, *({"field": name, **schema} for name, (schema, _) in fields.items()))
    found = decode(decoder(COLUMNS), [value(whole, {"id": n}) for n in range(2)])
    assert {kind for kind, _ in refusals(found).values()} == {"unknown_column"}
    assert len(refusals(found)) == 2
    assert found.new_fields == {name: column for name, (_, column) in fields.items() if column is not None}


def test_a_column_with_another_name_in_records_is_filled_and_told_by_its_own() -> None:
    of = ConnectDecoder(rows_of({"mine": pa.int8()}), Naming(fields={"mine": "theirs"}))
    whole = struct(KEY, field("theirs", "int32"))
    found = decode(of, [value(whole, {"id": 1, "theirs": 5}), value(whole, {"id": 2, "theirs": 500})])
    assert cells(found) == {0: [1, 5]}
    assert "'mine'" in refusals(found)[1][1]
    assert (
        refusals(decode(of, [value(struct(KEY, field("mine", "int8")), {"id": 1, "mine": 1})]))[0][0]
        == "unknown_column"
    )


def test_upserts_alone_get_defaults_where_a_member_is_absent() -> None:
    of = decoder(
        {"s": pa.string(), "at": pa.timestamp("us", "UTC")},
        Naming(defaults={"s": '"d"', "at": '"2024-01-01T00:00:00Z"'}),
    )
    at = {"field": "at", "type": "int64", "optional": True, "name": "org.apache.kafka.connect.data.Timestamp"}
    without, whole = struct(KEY, at), struct(KEY, at, field("s", "string"))
    values = [
        value(without, {"id": 0, "at": None}),
        value(without, {"id": 1}),
        value(whole, {"id": 2, "at": None, "s": None}),
        value(whole, {"id": 3}),
    ]
    rows = {place: row[1:] for place, row in cells(decode(of, values)).items()}
    newest = rows[1][1]
    assert newest is not None
    assert rows == {0: ["d", None], 1: ["d", newest], 2: [None, None], 3: ["d", newest]}
    assert all(row[1:] == [None, None] for row in cells(decode(of, values, Op.PATCH)).values())


def test_a_patch_has_the_members_of_its_payload() -> None:
    whole = struct(KEY, field("s", "string"), field("n", "int32"))
    values = [
        value(whole, {"id": 1, "n": None}),
        value(whole, {"id": 2, "s": "x", "n": 1}),
        value(struct(KEY), {"id": 3}),
    ]
    found = decode(decoder(COLUMNS), values, Op.PATCH)
    present = {
        int(place): bits
        for part in found.parts
        for place, bits in zip(part.indexes, part.present.to_pylist(), strict=True)
    }
    assert present == {0: bytes([0b101]), 1: bytes([0b111]), 2: bytes([0b1])}
