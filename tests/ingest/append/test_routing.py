"""Where records of a table keyed by bytes belong: by the bytes of their keys, whatever these are, and by nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest

from lancewal_core.errors import Misrouted, PartitionCountChanged
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.record_keys.key_choices import KeyFormat, Partitioner
from lancewal_core.record_keys.key_format import key_codec
from lancewal_core.record_keys.partitioner import partition_of as placed
from lancewal_core.record_keys.why_misrouted import why_misrouted
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Column, Contract
from lancewal_core.table.drain import Drain
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_kafka.records import Records

CONTRACT = Contract(
    table_uuid="u", topic="t", topic_id="i", partitions=7, primary_key=("id",), region_key=(),
    key_format="bytes", start=(0,) * 7,
    columns=(Column(name="id", type="int64", field_ids=(0,)), Column(name="s", type="string", field_ids=(1,))),
)  # fmt: skip
OF_7 = {b"customer-00042": 5, b"": 2, "grün".encode(): 2, b'["customer",42]': 1, b'["eu","customer-00042"]': 1}
"""From the vectors of the reference page, which Java's own classes have confirmed."""


def consumed(partition: int, keys: Sequence[bytes | None], values: Sequence[bytes | None] | None = None) -> Consumed:
    values = values or [json.dumps({"id": n, "s": "secret"}).encode() for n in range(len(keys))]
    offsets = [10 + 2 * n for n in range(len(keys))]
    records = Records(offsets, [0] * len(keys), list(keys), list(values), [None] * len(keys))
    return Consumed(Region("t", TopicId("i"), partition), Position(10), Position(offsets[-1] + 1), records)


@pytest.mark.parametrize("key", OF_7)
@pytest.mark.parametrize("partition", range(7))
def test_a_record_belongs_where_its_keys_bytes_say(key: bytes, partition: int) -> None:
    entry, rejected, stop = Preparer(CONTRACT).prepare(consumed(partition, [key]))
    assert rejected == ()
    if partition == OF_7[key]:
        assert stop is None
        assert entry is not None
        assert entry.rows["id"].to_pylist() == [0]
    else:
        assert entry is None
        assert stop is not None
        assert isinstance(stop.error, Misrouted)
        assert f"offset 10: the record's key belongs to partition {OF_7[key]} of 7" in str(stop.error)
        assert "canonical" not in str(stop.error)
        assert "customer" not in str(stop.error)


def test_a_record_without_a_key_belongs_nowhere() -> None:
    for partition in range(7):
        entry, _, stop = Preparer(CONTRACT).prepare(consumed(partition, [None]))
        assert entry is None
        assert stop is not None
        assert "belongs to no partition. " in str(stop.error)
        assert "without a key" in str(stop.error)


def test_each_row_is_asked_by_its_own_record() -> None:
    """Records that are no rows stand in between, and their keys count for nothing."""
    keys = [b"customer-00042", b"", b"customer-00042", None, b'["customer",42]', b"customer-00042"]
    values = [b'{"id": 1}', b"no json", b'{"id": 2}', b'{"id": 3}', b'{"id": 4}', b"{}"]
    lenient = CONTRACT.model_copy(update={"on_bad_record": "dead-letter", "on_misrouted": "dead-letter"})
    entry, rejected, stop = Preparer(lenient).prepare(consumed(5, keys, values))
    assert stop is None
    assert entry is not None
    assert entry.rows["id"].to_pylist() == [1, 2]
    assert [(r.offset, r.kind) for r in rejected] == [
        (12, "not_json"), (16, "misrouted"), (18, "misrouted"), (20, "missing_key"),
    ]  # fmt: skip


def test_no_tombstone_is_read_from_a_key_of_the_producers_own() -> None:
    """Nothing says which row it would delete, even where the key looks like the primary key."""
    entry, rejected, _ = Preparer(CONTRACT).prepare(consumed(5, [b"customer-00042"], [None]))
    assert entry is not None
    assert entry.rows.num_rows == 0
    assert [r.kind for r in rejected] == ["null_value"]


def test_canonical_tables_ask_the_row() -> None:
    columns = (Column(name="id", type="string", field_ids=(0,)),)
    changed = {"region_key": ("id",), "key_format": "canonical", "columns": columns}
    contract = Contract.model_validate({**CONTRACT.model_dump(), **changed})
    entry, _, stop = Preparer(contract).prepare(consumed(5, [None], [b'{"id": "customer-00042"}']))
    assert stop is None
    assert entry is not None
    assert entry.rows.column("id") == pa.array(["customer-00042"])


@pytest.mark.parametrize(
    ("key", "row", "cause"),
    [
        (b"customer-00042", b"customer-00042", "The record's key is right, its partition is not"),
        (b'"customer-00042"', b"customer-00042", "The bytes of its key are wrong"),
        (b"", b"customer-00042", "The bytes of its key are wrong"),
        (None, b"customer-00042", "The record has no key: the producer must send the canonical encoding of (id)"),
    ],
)
def test_a_stop_says_which_of_key_and_partition_is_wrong(key: bytes | None, row: bytes, cause: str) -> None:
    """Behind a record that is no row, whose key says nothing of the one that stops."""
    columns = (Column(name="id", type="string", field_ids=(0,)),)
    changed = {"region_key": ("id",), "key_format": "canonical", "columns": columns, "on_bad_record": "dead-letter"}
    contract = Contract.model_validate({**CONTRACT.model_dump(), **changed})
    values = [b"no json", b'{"id": "%s"}' % row]
    entry, _, stop = Preparer(contract).prepare(consumed(4, [b"another", key], values))
    assert entry is not None
    assert entry.next == 12
    assert stop is not None
    assert f"offset 12: the record's region key belongs to partition 5 of 7. {cause}" in str(stop.error)
    assert "`lancewal table alter --on misrouted=dead-letter`" in str(stop.error)
    assert "`lancewal offset reject t-4-12`" in str(stop.error)
    assert "00042" not in str(stop.error)


def test_a_stop_names_a_row_whose_key_has_no_encoding() -> None:
    rows = RowSchema(pa.schema([("id", pa.int64()), ("day", pa.date32())]), ("id",), ("id", "day"))
    assert why_misrouted(rows, "canonical", b"x", None, "murmur2").startswith("The record's (id, day) has no encoding")


@pytest.mark.parametrize(
    ("of", "key", "named"),
    [
        ("canonical", b"\0\0\0\0\0\0\0\x2a", "long"),
        ("canonical", b"\0\0\0\x2a", "integer"),
        ("long", b"\0\x2a", "short"),
        ("long", b"42", "canonical"),
        ("integer", b'{"id":42}', "json-compact"),
        ("canonical", b'{ "id" : 42 }', "json"),
        ("canonical", b"\0\0\0\0\0\0\0\x2b", None),
        ("canonical", b"", None),
    ],
)
def test_a_stop_names_the_format_of_the_keys(of: KeyFormat, key: bytes, named: str | None) -> None:
    rows = RowSchema(pa.schema([("id", pa.int64())]), ("id",), ("id",))
    codec = key_codec(rows, of)
    assert codec is not None
    said = why_misrouted(rows, of, key, codec.encode((42,)), "crc32")
    assert said.startswith("The bytes of its key are wrong")
    assert said.endswith(f"make the table with table.format.key: {named}") == (named is not None)
    assert ("another format" in said) == (named is not None)


@pytest.mark.parametrize(
    ("to", "taken", "next_", "new_from"), [(100, [0, 2], 16, 16), (16, [0, 2], 16, 16), (13, [0], 13, None)]
)
def test_a_partition_is_drained_up_to_a_key_of_the_new_number_or_its_end(
    to: int, taken: list[int], next_: int, new_from: int | None
) -> None:
    """With 9 partitions in the topic, and 7 in the contract."""

    def key(here: bool, by_the_new: bool) -> bytes:
        found = (b"key %d" % n for n in range(10_000))
        return next(k for k in found if ((partition_of(k, 7) == 5), (partition_of(k, 9) == 5)) == (here, by_the_new))

    keys = [key(True, False), key(False, False), key(True, True), key(False, True), key(True, False)]
    drain = Drain(contract_version=1, partitions=9, to=(to,) * 7, write_id="x")
    lenient = CONTRACT.model_copy(update={"on_bad_record": "dead-letter", "on_misrouted": "dead-letter"})
    entry, rejected, stop = Preparer(lenient, drain).prepare(consumed(5, keys))
    assert entry is not None
    assert (entry.rows["id"].to_pylist(), entry.next) == (taken, next_)
    assert [(r.offset, r.kind) for r in rejected] == [(12, "misrouted")]
    assert stop is not None
    assert isinstance(stop.error, PartitionCountChanged)
    assert (stop.error.where["partition"], stop.new_from) == (5, new_from)


@pytest.mark.parametrize("partitioner", ["crc32", "fnv1a"])
@pytest.mark.parametrize("key_format", ["bytes", "long", "canonical"])
def test_a_stop_names_the_partitioner_that_the_producer_uses(partitioner: Partitioner, key_format: KeyFormat) -> None:
    """The table expects murmur2, and the records of one partition lie where another partitioner puts them."""
    form = {} if key_format == "bytes" else {"region_key": ("id",), "key_format": key_format}
    contract = Contract.model_validate({**CONTRACT.model_dump(), **form})
    numbers, keys = [], []
    for number in range(1_000):
        key = number.to_bytes(8, "big") if key_format == "long" else b"%d" % number
        if placed(key, 7, partitioner) == 3:
            numbers.append(number)
            keys.append(key)
    values = [json.dumps({"id": number}).encode() for number in numbers]
    stop = Preparer(contract).prepare(consumed(3, keys, values)).stop
    assert stop is not None
    assert f"lie where {partitioner} puts them. Make the table with table.partitioner: {partitioner}" in str(stop.error)
    right = contract.model_copy(update={"partitioner": partitioner})
    entry, rejected, stop = Preparer(right).prepare(consumed(3, keys, values))
    assert (rejected, stop) == ((), None)
    assert entry is not None
    assert entry.rows["id"].to_pylist() == numbers


def test_no_partition_is_wrong_without_a_partitioner() -> None:
    contract = CONTRACT.model_copy(update={"partitioner": "none"})
    assert not contract.rows_tell_partition
    for partition in range(7):
        entry, rejected, stop = Preparer(contract).prepare(consumed(partition, [b"customer-00042", b"", None]))
        assert (rejected, stop) == ((), None)
        assert entry is not None
        assert entry.rows["id"].to_pylist() == [0, 1, 2]


def test_an_empty_key_belongs_nowhere_with_crc32() -> None:
    contract = CONTRACT.model_copy(update={"partitioner": "crc32"})
    for partition in range(7):
        stop = Preparer(contract).prepare(consumed(partition, [b""])).stop
        assert stop is not None
        assert "belongs to no partition. The record's key is empty" in str(stop.error)
