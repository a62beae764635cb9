"""What the decoder does with records: operations, headers, keys, sizes, offsets, and which path they take."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.decoder import Decoder
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.operations import CUT_HEADERS, KIND_HEADER, ORIGINAL, SOURCE_HEADER
from lancewal_ingest.decode.outcomes import KINDS
from tests.ingest.decode.json.cases import COLUMNS, ROWS, Header, KafkaKeys, Ways, records

PATCH: list[Header] = [("lancewal.op", b"patch")]
DELETE: list[Header] = [("lancewal.op", b"delete")]


def _present(*names: str) -> bytes:
    bits: int = sum(1 << COLUMNS.names.index(name) for name in names)
    return bits.to_bytes(ROWS.present_bytes, "little")


def test_rows_have_offset_timestamp_op_and_the_wal_schema() -> None:
    rows = Ways().both(records([b'{"id":1,"k":"a"}', b'{"k":"b","id":2,"s":"x"}'])).rows
    assert rows.schema.equals(ROWS.wal)
    assert rows["_offset"].to_pylist() == [100, 103]
    assert rows["_timestamp"].to_pylist()[1] == datetime(1970, 1, 1, 0, 0, 5, 1000, tzinfo=UTC)
    assert rows["_op"].to_pylist() == [0, 0]
    assert rows["_present"].to_pylist() == [None, None]
    assert rows["s"].to_pylist() == [None, "x"]


def test_no_records_give_no_rows() -> None:
    decoded = Ways().both(records([]))
    assert decoded.rows.num_rows == 0
    assert decoded.rows.schema.equals(ROWS.wal)


def test_a_patch_tells_absent_from_null() -> None:
    values = [
        b'{"id":1,"k":"a"}',
        b'{"id":1,"k":"a","s":null}',
        b'{"id":1,"k":"a","s":"null","ok":true}',
        b'{"vec8":null,"k":"a","id":1,"\\u0073":"x"}',
        b'{"id":1,"k":"a","st":{"x":null},"vec8":[1,2,3]}',
    ]
    rows = Ways().both(records(values, headers=[PATCH] * 5)).rows
    assert rows["_op"].to_pylist() == [2] * 5
    assert rows["_present"].to_pylist() == [
        _present("id", "k"),
        _present("id", "k", "s"),
        _present("id", "k", "s", "ok"),
        _present("id", "k", "s", "vec8"),
        _present("id", "k", "st", "vec8"),
    ]
    assert rows["s"].to_pylist() == [None, None, "null", "x", None]


def test_the_bitmap_by_hand() -> None:
    columns = pa.schema([(name, pa.int64()) for name in "abcdefghij"])
    ways = Ways(rows=RowSchema(columns, ("b",), ("b",)))
    rows = ways.both(records([b'{"b":1,"a":2,"j":3}', b'{"b":1,"i":null}'], headers=[PATCH, PATCH])).rows
    assert rows["_present"].to_pylist() == [bytes([0b00000011, 0b10]), bytes([0b00000010, 0b01])]


def test_patches_are_bad_where_the_contract_has_none() -> None:
    values = [b'{"id":1,"k":"a"}'] * 3
    decoded = Ways(patches=False).both(records(values, headers=[None, PATCH, DELETE]))
    assert [(bad.offset, bad.kind) for bad in decoded.rejected] == [(103, "patch_not_allowed")]
    assert decoded.rows["_op"].to_pylist() == [0, 1]


def test_a_delete_keeps_only_its_key_and_checks_the_rest() -> None:
    values = [
        b'{"id":1,"k":"a"}',
        b'{"id":2,"k":"b","s":"x","ints":[1],"st":{},"vec":[1,2]}',
        b'{"id":3,"k":"c","i8":1000}',
        b'{"id":4}',
        b'{"id":5,"k":"e","nope":1}',
    ]
    decoded = Ways().both(records(values, headers=[DELETE] * 5))
    assert [(bad.offset, bad.kind) for bad in decoded.rejected] == [
        (106, "range"),
        (109, "missing_key"),
        (112, "unknown_column"),
    ]
    rows = decoded.rows
    assert rows["id"].to_pylist() == [1, 2]
    assert rows["_op"].to_pylist() == [1, 1]
    assert all(rows[name].null_count == 2 for name in COLUMNS.names if name not in ("id", "k"))


def test_a_null_value_deletes_by_kafka_key() -> None:
    batch = records(
        [None, b'{"id":2,"k":"b"}', None, None, None, None],
        keys=[b"1|a", b"2|b", b"x", None, b"4|d", b"5|e"],
        headers=[None, None, None, None, DELETE, PATCH],
    )
    decoded = Ways().both(batch)
    assert [(bad.offset, bad.kind) for bad in decoded.rejected] == [(o, "null_value") for o in (106, 109, 115)]
    assert decoded.rows["_offset"].to_pylist() == [100, 103, 112]
    assert decoded.rows["id"].to_pylist() == [1, 2, 4]
    assert decoded.rows["k"].to_pylist() == ["a", "b", "d"]
    assert decoded.rows["_op"].to_pylist() == [1, 0, 1]


@pytest.mark.parametrize("values", [(1,), (None, "a"), ("1", "a"), (2**63, "a"), (1, 2)])
def test_a_kafka_key_that_is_not_the_primary_key_is_bad(values: tuple[object, ...]) -> None:
    decoder = Decoder(ROWS, JsonDecoder(ROWS), patches=True, record_bytes_max=1000, keys=KafkaKeys(lambda _: values))
    (bad,) = decoder.decode(records([None], keys=[b"k"])).rejected
    assert bad.kind == "null_value"


def test_without_a_reader_of_keys_a_null_value_is_bad() -> None:
    decoder = Decoder(ROWS, JsonDecoder(ROWS), patches=True, record_bytes_max=1000, keys=None)
    (bad,) = decoder.decode(records([None], keys=[b"1|a"])).rejected
    assert bad.kind == "null_value"


@pytest.mark.parametrize(
    ("headers", "op"),
    [
        (None, 0),
        ([], 0),
        ([("trace", b"1")], 0),
        ([("lancewal.op", b"upsert")], 0),
        ([("trace", None), ("lancewal.op", b"delete"), ("trace", b"2")], 1),
        ([("lancewal.op", b"patch")], 2),
        ([("lancewal", b"x"), ("lancewal-op", b"patch")], 0),
        ([(SOURCE_HEADER, b"t-0-1"), (KIND_HEADER, b"type"), (ORIGINAL + SOURCE_HEADER, b"t-0-0")], 0),
        ([("lancewal.op", b"delete"), ("original.lancewal.op", b"patch"), ("lancewal.source", b"t-0-1")], 1),
    ],
)
def test_the_operation_comes_from_the_header(headers: list[Header] | None, op: int) -> None:
    assert Ways().both(records([b'{"id":1,"k":"a"}'], headers=[headers])).rows["_op"].to_pylist() == [op]


@pytest.mark.parametrize(
    "name", ["lancewal.opp", "lancewal.", "lancewal.op ", "Lancewal.op", "LANCEWAL.OP", "lancewal.\ud800"]
)
@pytest.mark.parametrize("value", [b'{"id":1,"k":"a"}', None])
def test_a_header_that_might_be_meant_and_is_not_known_is_bad(name: str, value: bytes | None) -> None:
    plain = b'{"id":1,"k":"a"}'
    for others in ([], [("trace", b"")], DELETE, [("lancewal.op", b"nope")]):
        headers: list[Header] = [*others, (name, b"delete")]
        batch = records([plain, value, plain], keys=[b"1|a"] * 3, headers=[None, headers, PATCH])
        decoded = Ways().both(batch)
        assert [(bad.offset, bad.kind) for bad in decoded.rejected] == [(103, "unknown_header")]
        said = "expected no header whose name begins with 'lancewal.', but lancewal.op"  # nothing of the record
        assert decoded.rejected[0].message == said


@pytest.mark.parametrize("name", [*CUT_HEADERS, *(ORIGINAL + name for name in CUT_HEADERS)])
@pytest.mark.parametrize("value", [b'{"id":1,"k":"a"}', None])
def test_a_cut_dead_letter_is_no_record_and_deletes_nothing(name: str, value: bytes | None) -> None:
    """Nor does a letter about one, in which its headers are ``original.``."""
    plain = b'{"id":1,"k":"a"}'
    ours: list[Header] = [(SOURCE_HEADER, b"t-0-1"), (KIND_HEADER, b"too_large"), (name, b"2000000")]
    for others in ([], DELETE, [("lancewal.opp", b"")]):
        batch = records([plain, value, plain], keys=[b"1|a"] * 3, headers=[None, [*others, *ours], PATCH])
        decoded = Ways().both(batch)
        assert [(bad.offset, bad.kind) for bad in decoded.rejected] == [(103, "cut_letter")]
        assert decoded.rows["_op"].to_pylist() == [0, 2]


@pytest.mark.parametrize(
    "headers",
    [
        [("lancewal.op", None)],
        [("lancewal.op", b"")],
        [("lancewal.op", b"Delete")],
        [("lancewal.op", b"upsert"), ("lancewal.op", b"upsert")],
        [("lancewal.op", b"upsert"), ("trace", b""), ("lancewal.op", b"delete")],
    ],
)
def test_an_unclear_operation_is_bad(headers: list[Header]) -> None:
    plain = b'{"id":1,"k":"a"}'
    decoded = Ways().both(records([plain, plain, plain], headers=[None, headers, PATCH]))
    assert [(bad.offset, bad.kind) for bad in decoded.rejected] == [(103, "unknown_op")]


def test_the_size_counts_key_value_and_headers() -> None:
    value = b'{"id":1,"k":"a"}'
    headers: list[Header] = [("tröt", b"12"), ("x", None)]
    size = len(value) + 3 + len("tröt".encode()) + 2 + 1
    batch = records([value], keys=[b"key"], headers=[headers])
    assert Ways(record_bytes_max=size).both(batch).rejected == ()
    (bad,) = Ways(record_bytes_max=size - 1).both(batch).rejected
    assert bad.kind == "too_large"
    long: list[Header] = [("trace", b"x" * 100)]
    assert Ways(record_bytes_max=len(value) + 105).both(records([value], headers=[long])).rejected == ()
    assert len(Ways(record_bytes_max=len(value) + 104).both(records([value], headers=[long])).rejected) == 1
    for extra, key, head in ((0, None, None), (3, b"key", None), (16, None, PATCH)):
        alone = records([value] * 2, keys=[key] * 2, headers=[head] * 2)
        assert Ways(record_bytes_max=len(value) + extra).both(alone).rejected == ()
        assert len(Ways(record_bytes_max=len(value) + extra - 1).both(alone).rejected) == 2


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"", "not_json"),
        (b" \n", "not_json"),
        (b"{", "not_json"),
        (b'{"id":1,"k":"a"}}', "not_json"),
        (b'{"id":1,"k":"a"}]', "not_json"),
        (b'{"id":1,"k":"a"}{"id":2,"k":"a"}', "not_json"),
        (b'{"id":1,"k":"a"}\n{"id":2,"k":"a"}', "not_json"),
        (b'{"id":1,"k":"a"}}\n{"_":{"id":2,"k":"a"}', "not_json"),
        (b'{"id":1,"k":"a"}}\n{"__":{"id":2,"k":"a"}', "not_json"),
        (b'{"id":1,"k":"a"},"__":{"id":2,"k":"b"}', "not_json"),
        (b'{"id":1,"k":"a"}\x00', "not_json"),
        (b'{"id":1,"k":"a"} // yes', "not_json"),
        (b'{/**/"id":1,"k":"a"}', "not_json"),
        (b'{"id":1,"k":"a",}', "not_json"),
        (b'{"id":01,"k":"a"}', "not_json"),
        (b'{"id":+1,"k":"a"}', "not_json"),
        (b"{'id':1,'k':'a'}", "not_json"),
        (b'\xef\xbb\xbf{"id":1,"k":"a"}', "not_json"),
        (b'\x0b{"id":1,"k":"a"}', "not_json"),
        (b'{"id":1,"k":"\xff"}', "not_json"),
        (b'{"id":1,"k":"\xed\xa0\x80"}', "not_json"),
        (b'{"id":1,"k":"a","s":"\xc0\x80"}', "not_json"),
        ('{"id":1,"k":"a"}'.encode("utf-16"), "not_json"),
        (b"[]", "not_an_object"),
        (b'[{"id":1,"k":"a"}]', "not_an_object"),
        (b"1", "not_an_object"),
        (b'"x"', "not_an_object"),
        (b"null", "not_an_object"),
        (b"{}", "missing_key"),
        (b'{"id":1}', "missing_key"),
        (b'{"id":null,"k":"a"}', "missing_key"),
        (b'{"id":1,"k":"a","K":1}', "unknown_column"),
        (b'{"id":1,"k":"a","_offset":1}', "unknown_column"),
        (b'{"id":1,"k":"a","_":{}}', "unknown_column"),
        (b'{"id":1,"k":"a","":null}', "unknown_column"),
        (b'{"id":1,"k":"a","\xef\xbb\xbfs":"x"}', "unknown_column"),
        (b'{"id":1,"k":"a","id":1}', "duplicate_member"),
        (b'{"id":1,"k":"a","\\u0069d":1}', "duplicate_member"),
        (b'{"id":1,"k":"a","s":null,"s":null}', "duplicate_member"),
        (b"[" * 1_000_000, "too_deep"),
        (b'{"id":1,"k":"a","st":' + b'{"x":' * 500_000, "too_deep"),
        (b'{"id":1,"k":"a","ints":' + b"[" * 2_000 + b"]" * 2_000 + b"}", "too_deep"),
        (b'{"id":1,"k":"a","s":"' + b'\\"[' * 300_000, "not_json"),
    ],
)
def test_a_value_that_is_no_row_is_rejected_alone(value: bytes, kind: str) -> None:
    plain = b'{"id":1,"k":"a"}'
    decoded = Ways().both(records([plain, value, plain]))
    assert [(bad.offset, bad.kind) for bad in decoded.rejected] == [(103, kind)]


def test_every_kind_that_occurs_is_documented() -> None:
    bad = [b"", b"[]", b"{}", b'{"id":1,"id":1}', b'{"x":1}', b'{"id":"1","k":""}', b'{"id":1,"k":"","i8":999}']
    assert {one.kind for one in Ways().both(records(bad)).rejected} <= KINDS.keys()


def test_blanks_around_and_escaped_names_are_fine() -> None:
    values = [b' \t\r\n{"id":1,"k":"a"}\n ', b'{ "\\u0069\\u0064" : 2 ,\n"k":\r\n"a" }', b'{"k":"}\\n{","id":3}']
    decoded = Ways().both(records(values))
    assert decoded.rejected == ()
    assert decoded.rows["id"].to_pylist() == [1, 2, 3]
    assert decoded.rows["k"].to_pylist() == ["a", "a", "}\n{"]


def test_rows_do_not_move_when_a_blank_and_a_double_value_cancel_out() -> None:
    # Three messages that are three rows to a reader of lines, and not one row for each message.
    values = [b'{"id":1,"k":"a"}{"id":2,"k":"a"}', b"", b'{"id":3,"k":"a"}']
    decoded = Ways().both(records(values))
    assert decoded.rows["_offset"].to_pylist() == [106]
    assert decoded.rows["id"].to_pylist() == [3]


def test_halves_of_one_object_are_not_joined() -> None:
    whole = b'{"id":1,"k":"a","st":{"x":1},"s":"y"}'
    for cut in range(1, len(whole)):
        assert len(Ways().both(records([whole[:cut], whole[cut:]])).rejected) == 2


def _good(number: int) -> bytes:
    row = {
        "id": number,
        "k": "é" * (number % 5),
        "ok": number % 2 == 0,
        "u64": 2**64 - 1 - number,
        "f": number / 7,
        "dec": "1.25",
        "bin": "AP8=",
        "day": "2024-02-29",
        "at": "2024-02-29T12:00:00.5+01:00",
        "fine": "2024-02-29T12:00:00.123456789",
        "days": ["2024-02-29", None],
        "sts": [{"f": 0.5, "bin": "AA=="}],
        "vec": None if number % 3 else [0.5, number],
        "bits": None if number % 3 else [number % 256, 255],
    }
    return json.dumps(row).encode()


def test_a_batch_of_good_records_is_columnar() -> None:
    values = JsonDecoder(ROWS)
    some: list[list[Header] | None] = [None, PATCH, DELETE, [("trace", b"1")]]
    headers = [some[number % 4] for number in range(500)]
    batch = records([_good(number) for number in range(500)], headers=headers)
    decoded = Ways().decoder(values).decode(batch)
    assert decoded.rejected == ()
    assert decoded.rows["id"].to_pylist() == list(range(500))
    assert values.single_records == 0
    Ways().both(batch)


def test_one_bad_record_takes_few_others_with_it() -> None:
    values = [_good(number) for number in range(5000)]
    values[1234] = b'{"id":'
    decoder = JsonDecoder(ROWS)
    decoded = Ways().decoder(decoder).decode(records(values))
    assert [bad.offset for bad in decoded.rejected] == [100 + 3 * 1234]
    assert decoded.rows["id"].to_pylist() == [n for n in range(5000) if n != 1234]
    assert 1 <= decoder.single_records <= 64


def test_a_doubtful_row_goes_alone() -> None:
    values = [_good(number) for number in range(1000)]
    values[500] = b'{"id":500,"k":"","f":1e300}'
    values[501] = b'{"id":501,"k":"","day":"0200-01-01"}'
    decoder = JsonDecoder(ROWS)
    decoded = Ways().decoder(decoder).decode(records(values))
    assert decoded.rejected == ()
    assert decoded.rows["id"].to_pylist() == list(range(1000))
    assert decoded.rows["f"].to_pylist()[500] == 1e300
    assert decoder.single_records == 2
