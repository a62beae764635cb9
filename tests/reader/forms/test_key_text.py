"""Keys as texts: what a read shows of a key finds its row again, and what is no key is named."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.schema import RowSchema
from lancewal_reader.forms.key_text import keys_of_texts, without_row
from lancewal_reader.forms.plain_rows import plain_rows

INT64 = (-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1)
TEXTS = ("", "a", "-1", '"quoted"', "[1]", "null", "zwölf\n", "\x1b[2J", " spaced ", "'")
STAMPS = (-(2**63), -62_135_596_800_000_000, -1_000_001, -1, 0, 1, 1_769_860_800_123_456, 2**63 - 1)


def columns() -> dict[str, pa.Array]:
    """Values of each type that a key may have: at its bounds, and where its forms change."""
    found = {
        f"{sign}int{bits}": pa.array(
            [-(2 ** (bits - 1)), 0, 7, 2 ** (bits - 1) - 1] if not sign else [0, 7, 2**bits - 1],
            getattr(pa, f"{sign}int{bits}")(),
        )
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    }
    found["bool"] = pa.array([True, False])
    found["string"] = pa.array(TEXTS)
    found["binary"] = pa.array([b"", b"\x00", b"ab", b"abc", bytes(range(256))])
    found["date32"] = pa.array([-(2**31), -719_163, -719_162, -1, 0, 20_484, 2**31 - 1], pa.int32()).cast(pa.date32())
    found["large_string"] = pa.array(TEXTS, pa.large_string())
    found["large_binary"] = pa.array([b"", b"\x00", b"abc"], pa.large_binary())
    found["fixed_size_binary"] = pa.array([b"\x00\x00", b"ab", b"\xff\xff"], pa.binary(2))
    found["uuid"] = pa.array([UUID(int=0), UUID(int=7), UUID(int=2**128 - 1)], pa.uuid())
    for type_, ticks in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        stored, clock = (pa.int32(), pa.time32) if ticks < 10**6 else (pa.int64(), pa.time64)
        values = [0, 1, 60 * ticks, 43_200 * ticks + 1, 86_400 * ticks - 1]
        found[f"time {type_}"] = pa.array(values, stored).cast(clock(type_))
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC"):
            found[f"{unit} {zone}"] = pa.array(STAMPS, pa.int64()).cast(pa.timestamp(unit, zone))
    return found


COLUMNS = columns()


def schema_of(**types: pa.DataType) -> RowSchema:
    return RowSchema(pa.schema([*types.items(), ("more", pa.int64())]), tuple(types), ())


def keys(schema: RowSchema, *texts: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = keys_of_texts(schema, texts).to_pylist()
    return found


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_every_form_of_a_value_is_read_as_that_value(column: pa.Array) -> None:
    schema = schema_of(k=column.type)
    shown = [row["k"] for row in plain_rows(pa.record_batch({"k": column}))]
    texts = [value if isinstance(value, str) else json.dumps(value) for value in shown]
    assert keys_of_texts(schema, texts).column("k").combine_chunks().equals(column)
    two = schema_of(k=column.type, n=pa.int64())
    for forms in ([[value, 5] for value in shown], [{"n": 5, "k": value} for value in shown]):
        found = keys_of_texts(two, [json.dumps(form) for form in forms])
        assert found.column("k").combine_chunks().equals(column)
        assert set(found.column("n").to_pylist()) == {5}


def test_keys_of_all_columns_at_random() -> None:
    rng = Random(8)
    schema = schema_of(**{name: column.type for name, column in COLUMNS.items()})
    rows = [{name: rng.randrange(len(column)) for name, column in COLUMNS.items()} for _ in range(60)]
    table = pa.table(
        {name: column.take(pa.array([row[name] for row in rows])) for name, column in COLUMNS.items()}
    ).cast(schema.key)
    shown = [list(row.values()) for batch in table.to_batches() for row in plain_rows(batch)]
    assert keys_of_texts(schema, [json.dumps(values) for values in shown]).equals(table)


def test_times_of_other_zones_and_forms_are_the_same_moment() -> None:
    utc = schema_of(k=pa.timestamp("us", "UTC"))
    texts = ("2026-01-31T12:00:00Z", "2026-01-31 13:00:00+01:00", "2026-01-31T12:00:00.000+00:00")
    assert keys_of_texts(utc, texts).column("k").cast(pa.int64()).to_pylist() == [1_769_860_800_000_000] * 3


@pytest.mark.parametrize(
    ("type_", "text", "said"),
    [
        (pa.int8(), "128", "column 'k' takes int8: expected an integer from -128 to 127"),
        (pa.uint64(), "-1", "expected an integer from 0 to 18446744073709551615"),
        (pa.int64(), "7.0", "expected an integer"),
        (pa.int64(), "٣", "expected an integer"),
        (pa.int64(), "1" * 5000, "expected an integer"),
        (pa.int64(), "", "expected an integer"),
        (pa.bool_(), "True", "expected true or false"),
        (pa.binary(), "YQ", "expected base64 with its padding"),
        (pa.binary(), "YR==", "expected base64"),
        (pa.date32(), "2026-02-30", "expected a day such as 2026-01-31"),
        (pa.date32(), "99999999999 days since 1970", "expected a day"),
        (pa.timestamp("ms"), "2026-01-31T12:00:00Z", "without a zone"),
        (pa.timestamp("ms", "UTC"), "2026-01-31T12:00:00", "such as 2026-01-31T12:00:00Z, no finer than ms"),
        (pa.timestamp("ms", "UTC"), "2026-01-31T12:00:00.1234Z", "no finer than ms"),
        (pa.timestamp("ms", "UTC"), "5 us since 1970", "no finer than ms"),
        (pa.timestamp("ns", "UTC"), "9999-01-31T12:00:00Z", "expected a time"),
        (pa.timestamp("us", "UTC"), "2026-01-31T25:00:00Z", "expected a time"),
        (pa.string(), "\udc80", "expected a text"),
        (pa.large_string(), "\udc80", "expected a text"),
        (pa.binary(2), "YQ==", "expected 2 bytes in base64 with its padding"),
        (pa.binary(2), "YWJj", "expected 2 bytes"),
        (pa.uuid(), "123e4567e89b12d3a456426614174000", "expected a uuid such as 123e4567-e89b-12d3-a456-426614174000"),
        (pa.uuid(), "", "expected a uuid"),
        (pa.time32("ms"), "12:00:00.1234", "expected a time of day such as 12:00:00, no finer than ms"),
        (pa.time64("us"), "24:00:00", "expected a time of day"),
        (pa.time64("us"), "12:00:00Z", "expected a time of day"),
        (pa.time64("us"), "1970-01-01 12:00:00", "expected a time of day"),
        (pa.time64("us"), "", "expected a time of day"),
    ],
)
def test_what_is_no_value_of_the_column_is_refused(type_: pa.DataType, text: str, said: str) -> None:
    schema = schema_of(k=type_)
    with pytest.raises(InvalidInput, match=re.escape(said)):
        keys_of_texts(schema, [text])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("north", "a list of the values of ['region', 'id'] or an object with these names"),
        ("7", "expected JSON, a list"),
        ('["north"]', "expected JSON, a list"),
        ('["north", 7, 8]', "expected JSON, a list"),
        ('{"region": "north"}', "expected JSON, a list"),
        ('{"region": "north", "id": 7, "id": 8}', "expected JSON, a list"),
        ("[" * 100_000, "expected JSON, a list"),
        ('["north", "7"]', "column 'id' takes int64"),
        ('["north", 7.0]', "column 'id' takes int64"),
        ('["north", true]', "column 'id' takes int64"),
        ('["north", null]', "column 'id' takes int64"),
        ("[7, 7]", "column 'region' takes string: expected a text"),
        (f'["north", {2**63}]', "column 'id' takes int64"),
    ],
)
def test_what_is_no_key_of_several_columns_is_refused(text: str, said: str) -> None:
    schema = schema_of(region=pa.string(), id=pa.int64())
    assert keys(schema, '["north", 7]') == [{"region": "north", "id": 7}]
    with pytest.raises(InvalidInput, match=re.escape(said)):
        keys_of_texts(schema, ['["north", 7]', text])


def test_keys_without_a_row_are_shown_as_they_are_written() -> None:
    two = schema_of(region=pa.string(), id=pa.int64())
    texts = ['["zwölf", 7]', '["north", 8]', '["north", 9]', '["zwölf", 7]']
    rows = pa.table({"id": [8], "region": ["north"]})
    assert without_row(keys_of_texts(two, texts), rows) == [texts[0], texts[2]]
    one = schema_of(k=pa.string())
    assert without_row(keys_of_texts(one, ["a", "b\n"]), pa.table({"k": ["a"]})) == ["b\\n"]
