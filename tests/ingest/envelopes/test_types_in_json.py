"""Which columns take the values of PostgreSQL's and MariaDB's types in JSON without schemas, by the modes of the connector."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from lancewal_core.table.contract import Column, Contract
from tests.support.debezium import contract_of, samples, table_after, taken

AT = datetime(2024, 2, 29, 12, 34, 56, 123456)
AT_MS = AT.replace(microsecond=789000)
ALWAYS: dict[str, tuple[str, Any]] = {
    "b": ("bool", True), "i2": ("int16", 2), "i4": ("int32", 4), "i8": ("int64", 8), "f4": ("float32", 1.5),
    "f8": ("float64", 2.25), "txt": ("string", "text é 漢 😀"), "ch": ("string", "ch   "),
    "uid": ("uuid", UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")), "js": ("string", '{"b": 1,  "a": [1, 2]}'),
    "tstz": ("timestamp[us, UTC]", AT.replace(hour=10, tzinfo=UTC)), "ai": ("list<int32>", [1, None, 3]),
    "at": ("list<string>", ["a", None, "c d"]), "abool": ("list<bool>", [True, False, None]), "en": ("string", "happy"),
    "atstz": ("list<timestamp[us, UTC]>", [AT.replace(hour=10, tzinfo=UTC)]), "ip": ("string", "192.168.0.1/24"),
    "vc": ("string", "varchar"), "ci": ("string", "CiText"), "x": ("string", '<r a="1"/>'), "tsv": ("string", "'a':1 'b':2"),
    "jb": ("string", '{"a": [1, 2], "b": 1}'), "ttz": ("string", "10:34:56.123456Z"), "net": ("string", "10.0.0.0/8"),
    "mac": ("string", "08:00:2b:01:02:03"), "vb": ("binary", b"\x05"), "aen": ("list<string>", ["sad", "ok"]),
    "rts": ("string", '["2024-01-01 00:00:00+00","2024-01-02 00:00:00+00")'),
    "auid": ("list<string>", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    "tstz3": ("timestamp[ms, UTC]", AT_MS.replace(hour=10, tzinfo=UTC)),
    "r4": ("string", "[1,5)"), "b1": ("bool", True), "b8": ("binary", b"\xaa"), "o": ("int64", 4294967295),
    "pt": ("struct<x: float64, y: float64, wkb: binary, srid: int32>",
           {"x": 1.5, "y": -2.0, "wkb": b"\x01\x01" + bytes(9) + b"\xf8?" + bytes(7) + b"\xc0", "srid": None}),
}  # fmt: skip
DEFAULT: dict[str, tuple[str, Any]] = {
    "bin": ("binary", b"\x00\xff\x7f\x80"), "d": ("int32", 19782), "t": ("int64", 45296123456), "t3": ("int32", 45296789),
    "ts": ("timestamp[us]", AT), "ts3": ("timestamp[ms]", AT_MS), "hs": ("string", '{"k":"v","n":null}'),
    "iv": ("int64", 37091106789000), "ad": ("list<int32>", [19782]),
    "num": ("struct<scale: int32, value: binary>", {"scale": 5, "value": b"\x04\xcb/"}),
}  # fmt: skip
MARIADB: dict[str, tuple[str, Any]] = {
    "b": ("int8", 1), "t1": ("int8", 2), "ti": ("int8", -128), "tu": ("uint8", 255), "si": ("int16", -32768),
    "mi": ("int32", -8388608), "i": ("int32", 4), "iu": ("uint32", 4294967295), "bi": ("int64", -(2**63)),
    "de": ("binary", bytes.fromhex("075bcd15")), "f": ("float32", 1.5), "d": ("float64", 2.25), "b1": ("bool", True),
    "b9": ("binary", b"U\x01"), "c": ("string", "c"), "vc": ("string", "varchar"), "tx": ("string", "text é 漢 😀"),
    "bin": ("binary", b"bi\0\0"), "vb": ("binary", b"\0\xff"), "bl": ("binary", b"\xde\xad\xbe\xef"),
    "js": ("string", '{"b": 1,  "a": [1]}'), "en": ("string", "b"), "st": ("string", "x,z"), "y": ("int32", 2024),
    "da": ("int32", 19782), "ti0": ("int64", -3020399000000), "ti6": ("int64", 45296123456),
    "dt": ("timestamp[ms]", AT.replace(microsecond=0)), "dt6": ("timestamp[us]", AT),
    "ts": ("timestamp[us, UTC]", AT.replace(microsecond=0, tzinfo=UTC)), "ts6": ("timestamp[us, UTC]", AT.replace(tzinfo=UTC)),
    "pt": ALWAYS["pt"], "dflt": ("int32", 7), "gen": ("int32", 8), "virt": ("int32", 12),
}  # fmt: skip
"""The row with the id 3.  A NULL in ``dflt`` is the DEFAULT."""
STRINGS_OF_MARIADB: dict[str, tuple[str, Any]] = {
    "de": ("decimal128(12, 3)", Decimal("123456.789")), "bin": ("string", "62690000"), "vb": ("string", "00ff"),
    "bl": ("string", "deadbeef"), "da": ("string", "2024-02-29Z"), "ti0": ("string", None),
    "ti6": ("string", "12:34:56.123456Z"), "dt": ("timestamp[ms, UTC]", AT.replace(microsecond=0, tzinfo=UTC)),
    "dt6": ("timestamp[us, UTC]", AT.replace(tzinfo=UTC)),
}  # fmt: skip
"""With ``string``, ``isostring`` and ``hex``.  A time beyond a day is null."""
FORMS_OF_MARIADB = {"dt": "epoch_ms", "dt6": "epoch_us"}
FORMS = {"ts": "epoch_us", "ts3": "epoch_ms"}
"""Forms of the columns in the default modes."""
STRINGS: dict[str, tuple[str, Any]] = {
    "num_ps": ("decimal128(12, 3)", Decimal("123456.789")), "num_p": ("decimal128(20, 0)", Decimal(12345678901234567890)),
    "num": ("decimal128(38, 20)", Decimal("3.14159")), "num_big": ("decimal128(38, 10)", Decimal("1234567890.0123456789")),
    "mny": ("decimal128(20, 2)", Decimal("1234.56")), "bin": ("string", "00ff7f80"), "d": ("string", "2024-02-29Z"),
    "t": ("string", "12:34:56.123456Z"), "ts": ("timestamp[us, UTC]", AT.replace(tzinfo=UTC)),
    "ts3": ("timestamp[ms, UTC]", AT_MS.replace(tzinfo=UTC)), "iv": ("string", "P1Y2M3DT4H5M6.789S"),
    "hs": ("map<string, string>", [("k", "v"), ("n", None)]),
    "anum": ("list<decimal128(8, 2)>", [Decimal("1.25"), None, Decimal("3.5")]),
}  # fmt: skip


def of_types(
    types: dict[str, tuple[str, Any]], forms: dict[str, str], key: tuple[str, ...] = ("tenant", "id"), **terms: Any
) -> Contract:
    columns = {"tenant": "int32", "id": "int64", **{name: type_ for name, (type_, _) in types.items()}}
    columns = {name: type_ for name, type_ in columns.items() if name in types or name in key}
    contract = contract_of(columns, key, on_unknown_column="ignore", **terms)
    return contract.model_copy(
        update={"columns": tuple(_with_form(one, forms.get(one.name)) for one in contract.columns)}
    )


def _with_form(column: Column, form: str | None) -> Column:
    return column if form is None else column.model_copy(update={"json_form": form})


@pytest.mark.parametrize(
    ("table", "types", "forms"),
    [("all_types", DEFAULT, FORMS), ("all_types_string", STRINGS, {})],
    ids=["default", "strings"],
)
def test_values_come_out_exactly(table: str, types: dict[str, tuple[str, Any]], forms: dict[str, str]) -> None:
    types = {**ALWAYS, **types}
    records = [
        one for one in samples("postgres_types", table) if one.key in (b'{"tenant":1,"id":10}', b'{"tenant":1,"id":11}')
    ]
    found = table_after(of_types(types, forms), records)
    row = found['{"tenant":1,"id":10}']
    row["iv"] = row["iv"] // timedelta(microseconds=1) if isinstance(row["iv"], timedelta) else row["iv"]
    assert {name: row[name] for name in types} == {name: value for name, (_, value) in types.items()}
    if table == "all_types":
        nulls = found['{"tenant":1,"id":11}']
        assert {nulls[name] for name in types} == {None}


def test_a_decimal_of_the_default_mode_is_refused() -> None:
    """Its bytes tell no scale."""
    contract = of_types({"num_ps": ("decimal128(12, 3)", None)}, {}).model_copy(update={"on_bad_record": "dead-letter"})
    (record,) = [one for one in samples("postgres_types", "all_types") if one.key == b'{"tenant":1,"id":10}']
    (letter,) = [letter for one in taken(contract, [record]) for letter in one.outcome.letters]
    assert letter.kind == "type"
    assert "column 'num_ps'" in letter.message


def test_values_of_mariadb_come_out_exactly() -> None:
    records = [one for one in samples("mariadb_json", "all_types") if one.key != b'{"id":-1}']
    found = table_after(of_types(MARIADB, FORMS_OF_MARIADB, ("id",)), records)
    assert found['{"id":3}'] == {"id": 3, **{name: value for name, (_, value) in MARIADB.items()}}
    assert {found['{"id":1}'][name] for name in MARIADB if name != "dflt"} == {None}
    assert found['{"id":1}']["dflt"] == found['{"id":2}']["dflt"] == 7


def test_values_of_mariadb_as_texts_come_out_exactly() -> None:
    records = samples("mariadb_json", "all_types_string")
    found = table_after(of_types({**MARIADB, **STRINGS_OF_MARIADB}, {}, ("id",)), records)
    expected = {name: value for name, (_, value) in {**MARIADB, **STRINGS_OF_MARIADB}.items()}
    assert found['{"id":3}'] == {"id": 3, **expected}
    assert (found['{"id":4}']["ti0"], found['{"id":4}']["st"]) == ("12:34:56Z", "")


def test_an_unsigned_bigint_of_mariadb_in_the_mode_precise() -> None:
    """Its key and other columns are base64 of the number's bytes."""
    types: dict[str, tuple[str, Any]] = {"id": ("string", None), "bu": ("binary", None)}
    (row,) = table_after(of_types(types, {}, ("id",)), samples("mariadb_json", "all_types_precise")).values()
    assert row == {"id": "AP//////////", "bu": (2**64 - 1).to_bytes(9)}


def test_an_unsigned_bigint_of_mariadb_above_2_63_is_refused_by_an_unsigned_column() -> None:
    """The connector writes 2^64 - 1 as -1, in the key and in another column.  A signed column takes it as it comes."""
    records = samples("mariadb_json", "all_types")
    signed = table_after(of_types({"bu": ("int64", None)}, {}, ("id",)), records)
    assert signed['{"id":-1}'] == {"id": -1, "bu": -1}
    contract = of_types({"id": ("uint64", None), "bu": ("uint64", None)}, {}, ("id",), on_bad_record="dead-letter")
    found = taken(contract, records)
    letters = {letter.message.partition(":")[0]: letter.kind for one in found for letter in one.outcome.letters}
    assert letters == {"column 'id'": "range", "column 'bu'": "range"}
    rows = [row for one in found if one.outcome.entry for row in one.outcome.entry.rows.column("id").to_pylist()]
    assert sorted(rows) == [1, 2]


def test_zero_dates_of_mariadb() -> None:
    """In a column that is NOT NULL a zero date comes as the first day of 1970, and in another one as null."""
    types: dict[str, tuple[str, Any]] = {
        "d": ("int32", 0), "dt": ("timestamp[ms]", datetime(1970, 1, 1)), "dn": ("int32", None), "dtn": ("timestamp[ms]", None)
    }  # fmt: skip
    contract = of_types(types, {"dt": "epoch_ms", "dtn": "epoch_ms"}, ("id",))
    (row,) = table_after(contract, samples("mariadb_json", "zero_dates")).values()
    assert row == {"id": 1, **{name: value for name, (_, value) in types.items()}}
    texts = {**types, "d": ("string", "1970-01-01Z"), "dt": ("timestamp[ms, UTC]", datetime(1970, 1, 1, tzinfo=UTC))}
    texts |= {"dn": ("string", None), "dtn": ("timestamp[ms, UTC]", None)}
    (row,) = table_after(of_types(texts, {}, ("id",)), samples("mariadb_json", "zero_dates_string")).values()
    assert row == {"id": 1, **{name: value for name, (_, value) in texts.items()}}
