"""Kafka values, keys and headers: each record is a row or a rejection, whatever its bytes are, in bounded memory."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.region_key import RegionKeyCodec
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.outcomes import KINDS, Decoded
from lancewal_kafka.records import Records
from tests.ingest.decode.json.cases import COLUMNS, ROWS, Header, Ways, records
from tests.support.fuzzing import damaged, fuzz, memory_bound

MIB = 1 << 20
WHOLE = {
    "id": 7, "k": "x", "ok": True, "i8": -3, "u64": 2**64 - 1, "f": 1.5, "f4": 0.25, "dec": "12.30", "s": "text",
    "bin": "AAE=",
    "day": "2024-02-29", "at": "2024-02-29T12:00:00Z", "local": "2024-02-29T12:00:00", "ints": [1, None], "floats": [0.5],
    "st": {"x": 1, "day": "2024-02-29"}, "sts": [{"f": 0.5, "bin": ""}], "vec": [1.0, 2.0],
}  # fmt: skip
VALUES = [
    json.dumps(WHOLE).encode(),
    json.dumps(WHOLE, separators=(",", ":"), ensure_ascii=False).encode(),
    b'{"id":1,"k":"x"}',
    b'{"id":1,"k":"x","f":1e308,"dec":1e2,"s":"\\ud83d\\ude00\\u0000"}',
]
NAMES = (
    "lancewal.op",
    "lancewal.op ",
    "LANCEWAL.OP",
    "lancewal.kind",
    "lancewal.value.bytes",
    "trace",
    "",
    "\ud800",
    "n\x00",
    "__connect.errors.topic",
)
headers = st.none() | st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from((None, b"", b"upsert", b"patch", b"delete", b"UPSERT", b"\xff", b"x" * 300)),
    ),
    max_size=3,
)
keys = st.none() | st.sampled_from(("", "7|x", "|", "99999999999999999999|x")).map(str.encode)


def accounted(batch: Records, found: Decoded) -> None:
    """Each record once: as a sound row or as a rejection of a known kind that tells nothing of the record."""
    found.rows.validate(full=True)
    offsets = found.rows["_offset"].to_pylist() + [bad.offset for bad in found.rejected]
    assert sorted(offsets) == batch.offsets
    for bad in found.rejected:
        assert bad.kind in KINDS
        assert len(bad.message) < 1000


def both(values: list[bytes | None], names: list[list[Header] | None], of: list[bytes | None]) -> Decoded:
    batch = records(values, headers=names, keys=of)
    with memory_bound(64 * MIB):
        found = Ways(record_bytes_max=100_000).both(batch)
    accounted(batch, found)
    return found


@fuzz(400)
@given(st.lists(st.tuples(damaged(VALUES) | st.none() | st.binary(max_size=60), headers, keys), min_size=1, max_size=5))
def test_any_records(batch: list[tuple[bytes | None, list[Header] | None, bytes | None]]) -> None:
    both([v for v, _, _ in batch], [h for _, h, _ in batch], [k for _, _, k in batch])


@fuzz(300)
@given(damaged(VALUES))
def test_a_damaged_record_changes_none_of_its_neighbours(value: bytes) -> None:
    alone = both([VALUES[0]], [None], [None]).rows
    found = both([VALUES[0], value, VALUES[0]], [None] * 3, [None] * 3)
    assert found.rows["_offset"].to_pylist()[0] == 100
    for row in (found.rows.slice(0, 1), found.rows.slice(found.rows.num_rows - 1)):
        assert row.select(COLUMNS.names) == alone.select(COLUMNS.names)


OUTSIDE = [
    "1e-999999999",
    "0e-999999999",
    "-1.5E-0000999999999",
    "1e-77",
    "1e-1000",
    "0." + "0" * 400_000 + "1",
    "0.1e-99999",
]


@pytest.mark.parametrize("text", OUTSIDE, ids=lambda text: str(text)[:20])
@pytest.mark.parametrize("form", ["{}", '"{}"', " {} ", '"{}" ', "escaped"])
def test_no_scale_of_a_decimal_is_looked_up_outside_arrows_table(text: str, form: str) -> None:
    """A record of thirty bytes ended the process: the crash, or the accident, is in the library behind the fast path."""
    escaped = "".join(f"\\u{ord(c):04x}" for c in text[:2000])
    text = f'"{escaped}"' if form == "escaped" else form.format(text)
    values: list[bytes | None] = [b'{"id":1,"k":"x","%s":%s}' % (n, text.encode()) for n in (b"dec", b"wide")]
    found = both([*values, VALUES[0]], [None] * 3, [None] * 3)
    assert VALUES[0] is not None
    assert found.rows["_offset"].to_pylist()[-1] == 106


@pytest.mark.parametrize("name", ["dec", "wide"])
def test_ordinary_decimals_keep_to_the_fast_path(name: str) -> None:
    texts = ["1", "-0.25", '"12.5"', "1e2", "1.5e-1", '"0e-5"', "null"]
    values = [f'{{"id":1,"k":"x-1e-12e-40-e-50","s":"3f1e-401 x1.5E-90","{name}":{text}}}'.encode() for text in texts]
    decoder = JsonDecoder(ROWS)
    assert Ways().decoder(decoder).decode(records(values)).rows.num_rows == len(texts)
    assert decoder.single_records == 0


N = 400_000
BOMBS: dict[str, bytes] = {
    "arrays": b'{"id":1,"k":"x","ints":' + b"[" * N,
    "objects": b'{"st":' * N,
    "closed": b'{"id":1,"k":"x","s":' + b"[" * N + b"]" * N + b"}",
    "open string": b'{"id":1,"k":"' + b"\\" * N,
    "digits": b'{"id":' + b"9" * N + b',"k":"x"}',
    "fraction": b'{"id":1,"k":"x","f":0.' + b"9" * N + b"}",
    "exponent": b'{"id":1,"k":"x","f":1e' + b"9" * N + b"}",
    "decimal": b'{"id":1,"k":"x","wide":1e' + b"9" * 8 + b"}",
    "long decimal": b'{"id":1,"k":"x","wide":"' + b"9" * N + b'"}',
    "small decimal": b'{"id":1,"k":"x","wide":1e-' + b"9" * 9 + b"}",
    "blanks": b" " * N,
    "names": b'{"id":1,"k":"x",' + b",".join(b'"%d":1' % i for i in range(N // 10)) + b"}",
    "same name": b'{"id":1,"k":"x",' + b",".join([b'"s":"a"'] * (N // 10)) + b"}",
    "escapes": b'{"id":1,"k":"' + b"\\u0041" * (N // 6) + b'"}',
    "surrogates": b'{"id":1,"k":"' + b"\\ud800" * (N // 6) + b'"}',
    "items": b'{"id":1,"k":"x","ints":[' + b",".join([b"1"] * N) + b"]}",
    "zeros": bytes(N),
    "line breaks": b"\n" * N + b'{"id":1,"k":"x"}',
    "base64": b'{"id":1,"k":"x","bin":"' + b"=" * N + b'"}',
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("op", [None, b"patch", b"delete"])
def test_large_and_deep_values_cost_what_they_weigh(name: str, op: bytes | None) -> None:
    batch = records([BOMBS[name]], headers=[[("lancewal.op", op)] if op else None], keys=[b"7|x"])
    began = time.process_time()
    with memory_bound(128 * MIB):
        accounted(batch, Ways().both(batch))
    assert time.process_time() - began < 10, "far more than a pass or two over the bytes"


def test_header_bombs() -> None:
    """100,000 headers, or one of 10 MB, are a record too large by the contract, and cost no more than they weigh."""
    many: list[Header] = [(f"h{i}", b"v") for i in range(100_000)]
    ops: list[Header] = [("lancewal.op", b"upsert")] * 100_000
    large: list[Header] = [("trace", bytes(10 * MIB))]
    named: list[Header] = [("n" * 10 * MIB, None)]
    for bomb in (many, ops, large, named):
        batch = records([VALUES[2], VALUES[2]], headers=[bomb, None])
        with memory_bound(96 * MIB):
            found = Ways(record_bytes_max=1_000_000 if bomb is not many else 100_000).both(batch)
        accounted(batch, found)
        assert [bad.kind for bad in found.rejected] == ["too_large"]
    batch = records([VALUES[2], VALUES[2]], headers=[ops, None])
    with memory_bound(96 * MIB):
        assert [bad.kind for bad in Ways().both(batch).rejected] == ["unknown_op"]


CODECS = [
    RegionKeyCodec(pa.schema([(f"c{i}", t) for i, t in enumerate(types)]))
    for types in (
        [pa.string()], [pa.int8()], [pa.uint64()], [pa.bool_()], [pa.date32()], [pa.binary()],
        [pa.string(), pa.int64()], [pa.date32(), pa.binary(), pa.bool_()],
    )
]  # fmt: skip
KEYS = [
    b"x",
    b"-128",
    b"18446744073709551615",
    b"true",
    b"2024-02-29",
    b'["a\\"\\u0000",1]',
    b'["0001-01-01","AA==",false]',
]


@fuzz(400)
@given(damaged(KEYS) | st.binary(max_size=30))
def test_keys_are_the_canonical_bytes_of_their_values_or_none(key: bytes) -> None:
    for codec in CODECS:
        values = codec.decode(key)
        assert values is None or codec.encode(values) == key


@pytest.mark.parametrize(
    "key", [b"[" * N, b'{"a":' * N, b"9" * N, b"[" + b"9" * N + b",1]", b'["' + b"\\" * N, bytes(N)]
)
def test_large_and_deep_keys(key: bytes) -> None:
    for codec in CODECS:
        with memory_bound(64 * MIB):
            values = codec.decode(key)
        assert values is None or codec.encode(values) == key
