"""The columnar path and the reference path give the same rows and rejections, whatever the bytes are."""

from __future__ import annotations

import json
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import Names, Naming
from tests.ingest.decode.json.cases import COLUMNS, Header, Ways, records
from tests.ingest.decode.json.test_json_forms import BAD, GOOD

# For every run; with 6,000 they found nothing more.
EXAMPLES = 80

TOKENS = sorted(
    {text for _, text, _ in [*GOOD, *BAD] if len(text) < 200}
    | {"[[]]", "[null]", "{}", '{"x":null}', "1.", ".5", "-", "00", "tru", "nul", '"', "'a'", "inf", "nan", "[1,]"}
)
BY_COLUMN = {name: [text for column, text, _ in GOOD if column == name] or ["null"] for name in COLUMNS.names}
STRAY = [
    "}",
    "{",
    "]",
    "[",
    ",",
    ":",
    '"',
    "\\",
    "\n",
    " ",
    "\x00",
    "\ufeff",
    "null",
    "//",
    "/**/",
    '}\n{"_":',
    '}\n{"__":',
]
NAMES = {"id": '"\\u0069d"', "s": '"\\u0073"', "st": '"s\\u0074"'}


@st.composite
def members(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(COLUMNS.names))
    odd = draw(st.integers(0, 19))
    text = draw(st.sampled_from(TOKENS if odd == 0 else BY_COLUMN[name]))
    if odd == 1:
        return f'"{draw(st.sampled_from(["_", "__", "ID", "", "_offset"]))}":{text}'
    label = NAMES[name] if odd < 6 and name in NAMES else f'"{name}"'
    return f"{label}:{text}"


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    parts = [f'"id":{draw(st.integers(-3, 3))}', '"k":"x"'][: draw(st.sampled_from([2, 2, 2, 2, 2, 2, 2, 1, 0]))]
    used = {"id", "k"}
    for part in draw(st.lists(members(), max_size=6)):
        name = json.loads(part.partition(":")[0])
        if name not in used or draw(st.integers(0, 29)) == 0:
            parts.append(part)
            used.add(name)
    blank = draw(st.sampled_from(["", "", "", " ", "\n", "\r\n\t"]))
    return (blank + "{" + ("," + blank).join(parts) + "}" + blank).encode()


@st.composite
def values(draw: st.DrawFn) -> list[bytes]:
    """What one to three messages hold."""
    value = draw(objects())
    match draw(st.integers(0, 19)):
        case 0:
            cut = draw(st.integers(0, len(value)))
            return [value[:cut], value[cut:]]
        case 1:
            return [value + draw(st.sampled_from([b"", b"\n", b"}\n"])) + draw(objects()), b"", draw(objects())]
        case 2 | 3:
            place = draw(st.integers(0, len(value)))
            width = draw(st.integers(0, 2))
            return [value[:place] + draw(st.sampled_from(STRAY)).encode() + value[place + width :]]
        case 4:
            place = draw(st.integers(0, len(value)))
            return [value[:place] + draw(st.binary(max_size=3)) + value[place:]]
        case 5:
            return [draw(st.sampled_from(TOKENS)).encode()]
        case _:
            return [value]


OPERATIONS: list[list[Header] | None] = [
    None,
    None,
    [],
    [("lancewal.op", b"patch")],
    [("lancewal.op", b"delete")],
    [("trace", b"1"), ("lancewal.op", b"patch")],
    [("trace", b"1")],
    [("lancewal.op", b"nope")],
    [("lancewal.Op", b"delete")],
    [("lancewal.op", b"delete"), ("lancewal.kind", b"x")],
]


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.data())
def test_both_paths_agree(data: st.DataObject) -> None:
    flat: list[bytes | None] = [v for group in data.draw(st.lists(values(), max_size=8)) for v in group]
    flat = [None if data.draw(st.integers(0, 29)) == 0 else value for value in flat]
    n = len(flat)
    headers = data.draw(st.lists(st.sampled_from(OPERATIONS), min_size=n, max_size=n))
    keys = data.draw(st.lists(st.sampled_from([None, b"1|a", b"junk"]), min_size=n, max_size=n))
    ways = Ways(
        patches=data.draw(st.sampled_from([True, True, False])),
        record_bytes_max=data.draw(st.sampled_from([10_000, 10_000, 60])),
    )
    ways.both(records(flat, headers=headers, keys=keys), singly_max=data.draw(st.sampled_from([1, 1, 3])))


GONE = ["ints", "fine", "sts", "f4"]
"""Columns that were dropped: records still have them."""
OLD = {"s": "text", "wide": "number", "st": "inner", "vec": "embedding", "day": "date"}
"""Columns that have other names by now."""
CHANGED = RowSchema(
    pa.schema(
        [
            pa.field("inner", pa.struct([("renamed", pa.int64()), ("day", pa.date32())])) if f.name == "st"
            else f.with_name(OLD.get(f.name, f.name))
            for f in COLUMNS
            if f.name not in GONE
        ]
    ),
    ("id", "k"),
    ("k",),
)  # fmt: skip


def naming_of_changed(*, ignores: bool) -> Naming:
    inner = Names({"renamed": None, "day": None}, {"x": "renamed"}, frozenset({"_"}), ignores)
    present = {name: inner if name == "inner" else None for name in CHANGED.columns.names}
    names = Names(present, OLD, frozenset() if ignores else frozenset(GONE), ignores)
    return Naming(
        names, {"text": '"none"', "i32": "5", "bin": '"AAE="', "floats": "[1.5, null]", "inner": '{"renamed": 7}'}
    )


@pytest.mark.parametrize("ignores", [False, True])
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.data())
def test_both_paths_agree_about_columns_that_were_changed(ignores: bool, data: st.DataObject) -> None:
    """Most records are of old producers; a few have present names too."""
    flat: list[bytes | None] = [v for group in data.draw(st.lists(values(), max_size=8)) for v in group]
    renamed = data.draw(st.lists(st.integers(0, 4), min_size=len(flat), max_size=len(flat)))
    flat = [
        value.replace(b'"s":', b'"text":').replace(b'"st":', b'"inner":') if new == 0 and value is not None else value
        for new, value in zip(renamed, flat, strict=True)
    ]
    headers = data.draw(st.lists(st.sampled_from(OPERATIONS), min_size=len(flat), max_size=len(flat)))
    ways = Ways(rows=CHANGED, naming=naming_of_changed(ignores=ignores))
    ways.both(records(flat, headers=headers), singly_max=data.draw(st.sampled_from([1, 1, 3])))


number_texts = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.integers(-(2**65), 2**65).map(str),
    st.sampled_from([2**24, 2**53, 2**63, 10**38]).flatmap(lambda n: st.integers(n - 2, n + 2).map(str)),
)
NUMERIC = [f.name for f in COLUMNS if pa.types.is_primitive(f.type) and not pa.types.is_temporal(f.type)]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NUMERIC), number_texts, st.booleans()), min_size=1, max_size=12))
def test_numbers_agree(cells: list[tuple[str, str, bool]]) -> None:
    batch = [
        (
            '{"id":1,"k":"a"}'
            if name == "id"
            else f'{{"id":1,"k":"a","{name}":{f"{chr(34)}{n}{chr(34)}" if q else n}}}'
        ).encode()
        for name, n, q in cells
    ]
    Ways().both(records(batch))


two = st.integers(0, 99).map("{:02d}".format)
time_texts = st.builds(
    "{}-{}-{}{}{}:{}:{}{}{}".format,
    st.integers(0, 9999).map("{:04d}".format),
    st.integers(0, 13).map("{:02d}".format),
    st.integers(0, 32).map("{:02d}".format),
    st.sampled_from("TTT t"),
    st.integers(0, 24).map("{:02d}".format),
    st.integers(0, 60).map("{:02d}".format),
    st.integers(0, 60).map("{:02d}".format),
    st.sampled_from(["", "", ".5", ".120", ".123456", ".123456789", ".1234567890", ".", ".000000000000"]),
    st.sampled_from(["", "", "Z", "+02:00", "-23:59", "+24:00", "+0200", "+02", "-00:00"]),
)
TEMPORAL = [f.name for f in COLUMNS if pa.types.is_temporal(f.type)]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(TEMPORAL), time_texts), min_size=1, max_size=12))
def test_times_agree(cells: list[tuple[str, str]]) -> None:
    batch = [
        json.dumps({"id": 1, "k": "a", name: text[:10] if name == "day" else text}).encode() for name, text in cells
    ]
    Ways().both(records(batch))


ROUND_TRIP = RowSchema(
    pa.schema(
        [
            ("id", pa.int64()),
            ("s", pa.string()),
            ("f", pa.float64()),
            ("f4", pa.float32()),
            ("day", pa.date32()),
            ("ints", pa.list_(pa.uint16())),
            ("st", pa.struct([("b", pa.bool_()), ("t", pa.string())])),
        ]
    ),
    ("id",),
    ("id",),
)
written_rows = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "f": st.none() | st.floats(-(2.0**52), 2.0**52),
        "f4": st.none() | st.floats(-(2.0**23), 2.0**23, width=32),
        "day": st.none() | st.dates(date(1000, 1, 1), date(8999, 12, 31)),
        "ints": st.none() | st.lists(st.none() | st.integers(0, 2**16 - 1), max_size=4),
        "st": st.none() | st.fixed_dictionaries({"b": st.none() | st.booleans(), "t": st.none() | st.text('ab\n"\\é')}),
    }
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(written_rows, min_size=1, max_size=8), st.booleans())
def test_what_was_written_is_read_and_columnar(rows: list[dict[str, object]], ascii_only: bool) -> None:
    texts = [json.dumps(row, default=str, ensure_ascii=ascii_only) for row in rows]
    ways = Ways(rows=ROUND_TRIP)
    decoder = JsonDecoder(ROUND_TRIP)
    read = ways.decoder(decoder).decode(records([text.encode() for text in texts])).rows
    assert _text(read.select(ROUND_TRIP.columns.names).to_pylist()) == _text(rows)
    assert decoder.single_records == 0


def _text(rows: object) -> str:
    return json.dumps(rows, sort_keys=True, default=str)
