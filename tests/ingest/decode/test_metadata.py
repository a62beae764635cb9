"""Columns that the metadata of records fills, against plain Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.rows.fold import present_bits
from lancewal_core.rows.schema import PRESENT
from lancewal_core.settings.declared import ColumnSource
from lancewal_core.table.columns.changes import Added, ContractChange, Dropped, Renamed, Widened
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.contract import Column, Contract, DroppedField
from lancewal_ingest.append.prepare import Consumed, PrepareOutcome, Preparer
from lancewal_ingest.decode.headers import HeaderColumns
from lancewal_kafka.headers import UNREADABLE_HEADERS
from lancewal_kafka.records import Records

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SOURCES = {
    "topic": ("string", "kafka.topic"),
    "part": ("int32", "kafka.partition"),
    "at": ("int64", "kafka.offset"),
    "time": ("timestamp[ms, UTC]", "kafka.timestamp"),
    "key": ("binary", "kafka.key"),
    "key_text": ("string", "kafka.key"),
    "trace": ("string", "kafka.header.trace.id"),
    "raw": ("binary", "kafka.header.trace.id"),
}
Header = tuple[str, bytes | None]


def contract(**terms: Any) -> Contract:
    metadata = [
        Column(name=name, type=type_, field_ids=(place,), metadata=source)
        for place, (name, (type_, source)) in enumerate(SOURCES.items(), 2)
    ]
    columns = (
        Column(name="id", type="int64", field_ids=(0,)), *metadata[:3], Column(name="s", type="string", field_ids=(1,)),
        *metadata[3:],
    )  # fmt: skip
    return Contract(
        **{
            "format": 2, "table_uuid": "u", "topic": "orders", "topic_id": "i", "partitions": 9, "primary_key": ("id",),
            "region_key": (), "key_format": "bytes", "partitioner": "none", "start": (0,) * 9, "columns": columns, **terms,
        }
    )  # fmt: skip


def consumed(records: Records, partition: int = 7) -> Consumed:
    region = Region("orders", TopicId("i"), partition)
    first = Position(records.offsets[0])
    return Consumed(region, first, Position(records.offsets[-1] + 1), records)


def one(
    value: bytes | None = b'{"id":1,"s":"x"}',
    headers: list[Header] | None = None,
    key: bytes | None = b"k",
    timestamp: int = 1000,
) -> Records:
    return Records([41], [timestamp], [key], [value], [headers])


def outcome(records: Records, of: Contract | None = None) -> PrepareOutcome:
    return Preparer(of or contract()).prepare(consumed(records))


def row(found: PrepareOutcome) -> dict[str, Any]:
    assert found.entry is not None
    (only,) = found.entry.rows.to_pylist()
    return {name: only[name] for name in ("id", "s", *SOURCES)}


def test_a_row_has_the_metadata_of_its_record() -> None:
    trace: list[Header] = [("trace.id", b"first"), ("other", b"x"), ("trace.id", "é".encode())]
    assert row(outcome(one(headers=trace))) == {
        "id": 1, "s": "x", "topic": "orders", "part": 7, "at": 41, "time": EPOCH + timedelta(seconds=1), "key": b"k",
        "key_text": "k", "trace": "é", "raw": "é".encode(),
    }  # fmt: skip


@pytest.mark.parametrize(
    "headers", [None, [], [("trace.id", None)], [("Trace.id", b"x")], [("trace.id", b"x"), ("trace.id", None)]]
)
def test_what_a_record_has_not_is_null(headers: list[Header] | None) -> None:
    found = row(outcome(one(headers=headers, key=None, timestamp=-1)))
    assert [name for name in found if found[name] is None] == ["time", "key", "key_text", "trace", "raw"]


def test_a_time_that_python_does_not_hold_is_null() -> None:
    """A producer gave microseconds.  A read of such a cell would end in an error of Python's."""
    last, times = 253_402_300_799_999, []
    for time in (last, last + 1, 1_772_357_400_250_000, 2**62):
        entry = outcome(one(timestamp=time)).entry
        assert entry is not None
        times += entry.rows.column("time").to_pylist()
    assert times == [EPOCH + timedelta(milliseconds=last), None, None, None]


def test_bytes_that_are_no_text_are_null_and_counted() -> None:
    good, bad = ("trace.id", b"ok"), ("trace.id", b"\xff")
    delete = ("lancewal.op", b"delete")
    records = Records(
        [1, 2, 3, 4], [0] * 4, [b"a", b"\xfe", b"b", b"\xff"], [b'{"id":1}'] * 4, [[good], [bad], None, [bad, delete]]
    )
    (found,) = Preparer(contract()).prepare_all([consumed(records)])
    assert found.outcome.entry is not None
    rows = found.outcome.entry.rows
    assert rows["trace"].to_pylist() == ["ok", None, None, None]
    assert rows["raw"].to_pylist() == [b"ok", b"\xff", None, None]
    assert rows["key_text"].to_pylist() == ["a", None, "b", None]
    assert {(name.use, name.path): n for name, n in found.other_names.items()} == {
        ("not_utf8", "trace"): 1, ("not_utf8", "key_text"): 1,
    }  # fmt: skip
    assert not found.by_terms


def test_a_patch_sets_them_and_a_delete_does_not() -> None:
    patch = outcome(one(b'{"id":1,"s":null}', [("lancewal.op", b"patch")]))
    assert patch.entry is not None
    rows = contract().rows
    bits = present_bits(patch.entry.rows[PRESENT], rows)
    assert bits.tolist() == [[True] * len(rows.columns)]
    without = outcome(one(b'{"id":1}', [("lancewal.op", b"patch")]))
    assert without.entry is not None
    bits = present_bits(without.entry.rows[PRESENT], rows)
    assert [n for n, has in zip(rows.columns.names, bits[0], strict=True) if not has] == ["s"]
    assert row(patch)["at"] == 41
    for value in (b'{"id":1,"s":"x"}', b'{"id":1}'):
        headers: list[Header] = [("lancewal.op", b"delete")]
        found = row(outcome(one(value, headers)))
        assert {name for name in found if found[name] is not None} == {"id"}


def test_a_tombstone_sets_none() -> None:
    of = contract(region_key=("id",), key_format="canonical", patches=False)
    found = row(outcome(one(None, key=b"5"), of))
    assert {name for name in found if found[name] is not None} == {"id"}


@pytest.mark.parametrize("name", ["at", "key_text"])
@pytest.mark.parametrize("former", [(), (DroppedField(name="gone"),)])
def test_no_value_holds_such_a_member(name: str, former: Sequence[DroppedField]) -> None:
    found = outcome(one(f'{{"id":1,"{name}":null}}'.encode()), contract(dropped=tuple(former)))
    assert [letter.kind for letter in found.letters] == ["unknown_column"]
    assert name not in found.letters[0].message


def test_a_record_whose_headers_cannot_be_read_is_bad() -> None:
    assert [letter.kind for letter in outcome(one(headers=list(UNREADABLE_HEADERS))).letters] == ["unreadable_header"]


def random_records(rng: random.Random, count: int) -> Records:
    def headers() -> list[Header] | None:
        drawn = [
            rng.choice(
                [("trace.id", b"a"), ("trace.id", b"\xff"), ("trace.id", None), ("x", b"y"), ("lancewal.op", b"patch")]
            )
            for _ in range(rng.randrange(4))
        ]
        return drawn or None

    values = [b'{"id":%d}' % n for n in range(3)] + [b"{", None, b'{"id":1,"s":"x"}']
    return Records(
        sorted(rng.sample(range(1000), count)), [rng.choice([-1, 5, 10**12]) for _ in range(count)],
        [rng.choice([None, b"", b"k", b"\xff"]) for _ in range(count)], [rng.choice(values) for _ in range(count)],
        [headers() for _ in range(count)],
    )  # fmt: skip


def test_a_record_that_is_read_again_in_any_batch_gives_the_same_row() -> None:
    preparer = Preparer(contract())
    for seed in range(60):
        rng = random.Random(seed)
        records = random_records(rng, 30)
        whole = preparer.prepare(consumed(records)).entry
        at, pieces = 0, []
        while at < 30:
            end = min(at + rng.randrange(1, 9), 30)
            entry = preparer.prepare(consumed(records.part(at, end))).entry
            assert entry is not None
            pieces.append(entry.rows)
            at = end
        assert whole is not None
        assert pa.Table.from_batches(pieces).to_pylist() == whole.rows.to_pylist()
        lasts = dict(zip(records.offsets, records.headers, strict=True))
        for one_row in whole.rows.to_pylist():
            found = [value for name, value in lasts[one_row["at"]] or () if name == "trace.id"]
            assert one_row["raw"] == (found[-1] if found else None)


def test_no_row_takes_more_than_its_weight() -> None:
    preparer = Preparer(contract())
    cases: list[tuple[list[Header] | None, bytes | None]] = [
        (None, None), ([("trace.id", b"h" * 10_000)], b"k"), (None, b"k" * 10_000), ([("x", b"h" * 9)] * 50, b""),
    ]  # fmt: skip
    for headers, key in cases:
        records = one(headers=headers, key=key)
        entry = preparer.prepare(consumed(records)).entry
        assert entry is not None
        (weight,) = preparer.weights.each(records).tolist()
        assert entry.rows.nbytes <= weight
        assert preparer.weights.fit(records, weight)
        assert not preparer.weights.fit(records, entry.rows.nbytes - 16)
        size = sum(len(value or b"") + len(name) for name, value in headers or ()) + len(key or b"") + 16
        assert entry.rows.nbytes <= preparer.weights.largest(size)


AROUND = Surroundings(highest_field_id=19, indexed={})


def test_columns_of_metadata_are_added_renamed_and_dropped() -> None:
    of = contract()
    added = Added(("when",), pa.timestamp("ms", "UTC"), None, ColumnSource(metadata="kafka.timestamp"))
    of = changed(of, [added, Renamed(("at",), "place"), Dropped(("part",))], AROUND, "a")
    found = outcome(one(), of).entry
    assert found is not None
    (only,) = found.rows.to_pylist()
    assert (only["when"], only["place"]) == (EPOCH + timedelta(seconds=1), 41)
    assert "part" not in only
    for name in ("at", "place", "part", "when"):
        assert [one_.kind for one_ in outcome(one(f'{{"id":1,"{name}":7}}'.encode()), of).letters] == ["unknown_column"]
    assert changed(of, [Dropped(("part",))], AROUND, "b") is of
    assert changed(of, [added], AROUND, "b") is of


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (Widened(("part",), pa.int64()), "its values come from kafka.partition, which has a fixed type"),
        (
            Added(("n",), pa.int64(), None, ColumnSource(metadata="kafka.partition")),
            "kafka.partition, which is of type int32",
        ),
        (Added(("n",), pa.int64(), "1", ColumnSource(metadata="kafka.offset")), "so it has no default"),
        (Added(("n",), pa.int64(), None, ColumnSource(metadata="kafka.lag")), "kafka.lag"),
        (Added(("n",), pa.int64(), None, ColumnSource(metadata="envelope.source.lsn")), "which only an envelope has"),
    ],
)
def test_what_metadata_cannot_fill_is_refused(change: ContractChange, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        changed(contract(), [change], AROUND, "a")


def test_loaded_rows_have_no_metadata() -> None:
    assert contract().loaded_rows.columns.names == ["id", "s"]
    assert contract().loaded_rows.ids == ((0,), (1,))


def test_headers_are_found_column_by_column() -> None:
    rng = random.Random(5)
    drawn: list[list[Header] | None] = [
        rng.choice([None, [], [(rng.choice("ab"), rng.choice([None, b"1", b"2"])) for _ in range(rng.randrange(5))]])
        for _ in range(500)
    ]
    for name in "abc":
        lasts = [[value for found, value in headers or () if found == name][-1:] for headers in drawn]
        assert HeaderColumns(drawn).last(name).to_pylist() == [last[0] if last else None for last in lasts]
    assert np.array_equal(HeaderColumns([]).last("a").to_pylist(), [])
