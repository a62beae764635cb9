"""Which columns take the values of PostgreSQL's types in JSON without schemas, by the modes of the connector."""

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


def of_types(types: dict[str, tuple[str, Any]], forms: dict[str, str]) -> Contract:
    columns = {"tenant": "int32", "id": "int64", **{name: type_ for name, (type_, _) in types.items()}}
    contract = contract_of(columns, ("tenant", "id"), on_unknown_column="ignore")
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
