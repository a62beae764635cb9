"""Records of many regions that are decoded together come to what each region's come to alone."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from lancewal_core.names.ids import Generation, Position, Region, Sequence, TopicId
from lancewal_core.record_keys.key_choices import KeyFormat
from lancewal_core.rows.murmur2 import partitions_of
from lancewal_core.rows.region_key import RegionKeyCodec
from lancewal_core.settings.sections import Policy
from lancewal_core.table.contract import Column, Contract
from lancewal_core.table.drain import Drain
from lancewal_ingest.append import prepare
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_ingest.regions.memtable import MemTable, own
from lancewal_kafka.headers import HeaderList
from lancewal_kafka.records import Records

PARTITIONS = 5
METADATA = (
    Column(name="in_partition", type="int32", field_ids=(2,), metadata="kafka.partition"),
    Column(name="op", type="string", field_ids=(3,), metadata="kafka.header.lancewal.op"),
)


def contract_of(key_format: KeyFormat, policy: Policy) -> Contract:
    return Contract(
        table_uuid="u", topic="t", topic_id="i", partitions=PARTITIONS, primary_key=("id",),
        region_key=("id",) if key_format == "canonical" else (), key_format=key_format, start=(0,) * PARTITIONS,
        columns=(
            Column(name="id", type="int64", field_ids=(0,)), Column(name="s", type="string", field_ids=(1,)), *METADATA,
        ),
        on_bad_record=policy, on_misrouted=policy,
    )  # fmt: skip


def consumed_of(rng: random.Random) -> list[Consumed]:
    """Some of every partition: rows, patches, deletes, tombstones, and what is no row or lies in another partition."""
    found = []
    for partition in range(PARTITIONS):
        count = rng.choice([0, 1, 2, 5, 30])
        headers: list[HeaderList | None] = []
        records = Records([], [], [], [], headers)
        at = 10
        for _ in range(count):
            id_ = rng.randrange(40)
            value = json.dumps({"id": id_, "s": rng.choice([None, "x" * rng.randrange(9)])}).encode()
            records.offsets.append(at)
            records.timestamps.append(1_000 + at)
            records.keys.append(rng.choice([None, str(id_).encode(), str(id_).encode()]))
            records.values.append(rng.choice([value, value, value, value, b"{", None, b'{"id": null}']))
            op = rng.choice(["", "", "delete", "patch", "what"])
            headers.append([("lancewal.op", op.encode())] if op else None)
            at += rng.choice([1, 1, 3])
        region = Region("t", TopicId("i"), partition)
        found.append(Consumed(region, Position(10), Position(at), records, 100 * count) if count else _nothing(region))
    return found


def _nothing(region: Region) -> Consumed:
    """A gap."""
    return Consumed(region, Position(10), Position(12), Records([], [], [], [], []))


@pytest.mark.parametrize("policy", ["stop", "dead-letter", "ignore"])
@pytest.mark.parametrize("key_format", ["canonical", "bytes"])
@pytest.mark.parametrize("drained", [False, True])
def test_it_comes_to_the_same(
    key_format: KeyFormat, policy: Policy, drained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = contract_of(key_format, policy)
    drain = Drain(contract_version=1, partitions=8, to=(30,) * PARTITIONS, write_id="w") if drained else None
    preparer = Preparer(contract, drain)
    for seed in range(25):
        rng = random.Random(seed)
        consumed = consumed_of(rng)
        monkeypatch.setattr(prepare, "TOGETHER_BYTES", rng.choice([1, 20 << 10, 2 << 20]))
        together = [found.outcome for found in preparer.prepare_all(consumed)]
        alone = [preparer.prepare(one) for one in consumed]
        for one, other in zip(together, alone, strict=True):
            assert (one.entry, one.letters) == (other.entry, other.letters)
            assert str(one.stop and one.stop.error) == str(other.stop and other.stop.error)
            assert (one.stop and one.stop.new_from) == (other.stop and other.stop.new_from)


def test_the_rows_of_a_memtable_keep_no_others_in_memory_once_they_are_its_own() -> None:
    preparer = Preparer(contract_of("canonical", "dead-letter"))
    rng = random.Random(1)
    at = dict.fromkeys(range(PARTITIONS), Position(0))
    tables = {
        p: MemTable(Region("t", TopicId("i"), p), Generation(1), Sequence(0), Position(0), 0.0, 0.0)
        for p in range(PARTITIONS)
    }
    rows: dict[int, list[pa.RecordBatch]] = {p: [] for p in range(PARTITIONS)}
    for turn in range(12):
        for one, shared, *_ in preparer.prepare_all(consumed_of(rng)):
            assert one.entry is not None
            partition = one.entry.region.partition
            moved = one.entry.next - one.entry.first
            entry = replace(one.entry, first=at[partition], next=Position(at[partition] + moved))
            tables[partition].apply(entry, 0.0, shared)
            at[partition] = entry.next
            rows[partition].append(one.entry.rows)
        if turn % 5 == 4:
            own(tables.values())
            for table in tables.values():
                held = sum(_buffer_bytes(column) for batch in table.batches for column in batch.columns)
                assert held <= 2 * sum(batch.nbytes for batch in table.batches) + 2_048 * len(table.batches)
                assert table.nbytes == sum(batch.get_total_buffer_size() for batch in table.batches)
    own(tables.values())
    for partition, table in tables.items():
        schema = rows[partition][0].schema
        assert pa.Table.from_batches(table.batches, schema) == pa.Table.from_batches(rows[partition], schema)


def test_what_memtables_share_is_counted_by_its_parts() -> None:
    preparer = Preparer(contract_of("canonical", "dead-letter"))
    records = [Records([n], [0], [b"1"], [b'{"id": %d}' % n], [None]) for n in range(200)]
    regions = partitions_of(
        RegionKeyCodec(pa.schema([("id", pa.int64())])).encode_batch([pa.array(range(200))]), PARTITIONS
    )
    found = preparer.prepare_all(
        [
            Consumed(Region("t", TopicId("i"), int(p)), Position(n), Position(n + 1), one)
            for n, (one, p) in enumerate(zip(records, regions, strict=True))
        ]
    )
    (whole,) = {shared.range.batch.get_total_buffer_size() for _, shared, *_ in found if shared is not None}
    assert whole - len(found) <= sum(shared.nbytes for _, shared, *_ in found if shared is not None) <= whole


def _buffer_bytes(column: pa.Array) -> int:
    return sum(buffer.size for buffer in column.buffers() if buffer is not None)
