"""What records weigh, and that polls, segments, decoding and generations keep to it.  Weights are compared with what Arrow
says the rows take."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import BadRecord
from lancewal_core.names import paths
from lancewal_core.names.ids import Position
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Column, Contract
from lancewal_core.wal import segment
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_ingest.decode import decoder
from lancewal_ingest.decode.decoder import Decoder
from lancewal_ingest.decode.json import decoder as json_decoder
from lancewal_ingest.decode.json import hazards
from lancewal_ingest.decode.json.columnar import Columns
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.json.forms import Shape
from lancewal_ingest.decode.json.reference import ReferenceDecoder
from lancewal_ingest.decode.value_decoder import Ops
from lancewal_ingest.decode.weight import pieces
from lancewal_ingest.kafka.source import Polled
from lancewal_ingest.regions import intake as intake_module
from lancewal_ingest.regions.policy import GENERATION_BYTES_MAX, MemoryPolicy, SealDecision, SealPolicy, WorkerLimits
from lancewal_ingest.service.worker import IngestWorker
from lancewal_kafka.clients import bounded_consumer_properties
from lancewal_kafka.records import Records
from tests.ingest.service.test_worker import MemoryObserver, Place, Source
from tests.support.regions import by_region, region


def records_of(values: Sequence[bytes | None], first: int = 0, key: bytes = b"") -> Records:
    count = len(values)
    return Records(list(range(first, first + count)), [0] * count, [key] * count, list(values), [None] * count)


def schema(**types: str) -> RowSchema:
    columns = pa.schema([("k", pa.int64()), *((name, parse_type(text)) for name, text in types.items())])
    return RowSchema(columns, ("k",), ("k",))


def decoder_of(rows: RowSchema) -> Decoder:
    return Decoder(rows, JsonDecoder(rows), patches=True, record_bytes_max=1 << 20, keys=None)


@pytest.mark.parametrize(
    ("type_", "held"),
    [
        ("fixed_size_list<float32>[1536]", "null"),
        ("fixed_size_list<float32>[4]", "[1,2,3,4]"),
        ("fixed_size_list<uint8>[128]", "null"),
        ("struct<a: fixed_size_list<float64>[700], b: bool>", "null"),
        ("string", json.dumps("x" * 5000)),
        ("string", '"' + "\\u0041é\\n" * 500 + '"'),
        ("list<int64>", f"[{','.join('1' * 3000)}]"),
        ("list<bool>", f"[{','.join(['true'] * 999)}]"),
        ("list<string>", '[""' + ',""' * 998 + "]"),
        ("list<list<int64>>", f"[{','.join(['[1]'] * 999)}]"),
        ("list<list<int64>>", f"[{','.join(['[]'] * 999)}]"),
        ("list<list<fixed_size_list<float32>[64]>>", f"[[],{','.join(['[null]'] * 99)},null]"),
        ("list<fixed_size_list<float64>[40]>", f"[{','.join(['null'] * 99)}]"),
        ("list<struct<a: int64, b: decimal128(38, 2), c: string>>", f"[{','.join(['{}'] * 999)}]"),
        ("binary", '"' + "QUJD" * 999 + '"'),
        ("decimal128(38, 2)", "1"),
    ],
)
def test_no_row_is_larger_than_its_record_weighs(type_: str, held: str) -> None:
    rows = schema(c=type_)
    values = [f'{{"k":{k},"c":{held}}}'.encode() for k in range(50)]
    decoded = decoder_of(rows).decode(records_of(values))
    assert decoded.rejected == ()
    each = decoder_of(rows).weights.each(records_of(values))
    assert decoded.rows.nbytes <= each.sum() <= 50 * decoded.rows.nbytes
    assert (each >= [len(value) for value in values]).all()


@pytest.mark.parametrize(
    ("type_", "held"),
    [
        (f"list<struct<{', '.join(f'f{n}: float64' for n in range(10))}>>", [{f"f{n}": n / 8 for n in range(10)}] * 5),
        ("list<fixed_size_list<float32>[128]>", [[0.25] * 128] * 32),
        ("struct<a: list<list<fixed_size_list<float64>[50]>>>", {"a": [[[0.25] * 50] * 9, [None], []]}),
    ],
    ids=["lines", "vectors", "nested"],
)
def test_filled_lists_weigh_about_what_they_take(type_: str, held: object) -> None:
    """Else a segment would hold a few records only."""
    rows = schema(c=type_)
    records = records_of([json.dumps({"k": k, "c": held}).encode() for k in range(50)])
    decoded = decoder_of(rows).decode(records)
    assert decoded.rows.nbytes <= decoder_of(rows).weights.each(records).sum() <= 5 * decoded.rows.nbytes


def test_keys_headers_and_missing_values_weigh_too() -> None:
    rows = schema(a="string")
    plain, null = records_of([b"{}" * 500]), records_of([None])
    headers = Records([0], [0], [b"k" * 3000], [None], [[("trace", b"x" * 9000), ("none", None)]])
    weights = decoder_of(rows).weights
    assert [weights.each(r)[0] >= n for r, n in ((plain, 1000), (null, 0), (headers, 12_000))] == [True] * 3


def test_pieces_are_as_long_as_fits_and_never_empty() -> None:
    assert pieces(np.array([3, 3, 3, 9, 1, 1]), 6) == [2, 3, 4, 6]
    assert pieces(np.array([], np.int64), 6) == []


def place(columns: str, partitions: int = 1, record_bytes_max: int = 10_000) -> Place:
    made = Place(partitions)
    made.contract = Contract(
        **made.contract.model_dump(exclude={"columns", "record_bytes_max"}), record_bytes_max=record_bytes_max,
        columns=(Column(name="k", type="int64", field_ids=(0,)), Column(name="a", type=columns, field_ids=(1,))),
    )  # fmt: skip
    made.context = type(made.context)(
        made.context.store, made.context.table, made.context.states, made.context.watermarks, made.context.tasks,
        made.clock, made.contract, made.context.contracts, made.context.new_id,
    )  # fmt: skip
    return made


class Full(Source):
    """Every partition has as many records as are asked for, each with the value that ``value`` gives for its offset."""

    def __init__(self, made: Place, value: Any) -> None:
        super().__init__(made.contract.partitions)
        self.value = value
        self.asked: list[int] = []
        self.at = dict.fromkeys(range(self.partitions), 0)
        self.keys = {
            p: next(k for k in range(10_000) if partition_of(encode_region_key(k), self.partitions) == p)
            for p in self.at
        }

    def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        delivering = [p for p in self.started if p not in self.held and p not in self.stopped]
        if not delivering:
            return Polled({}, {})
        self.asked.append(records_max)
        found = {}
        for n, p in enumerate(delivering):
            count = records_max // len(delivering) + (n < records_max % len(delivering))
            if count:
                values = [self.value(self.keys[p], self.at[p] + i) for i in range(count)]
                found[p] = records_of(values, self.at[p], encode_region_key(self.keys[p]))
                self.at[p] += count
        return Polled(by_region(found), by_region({p: Position(self.at[p]) for p in delivering}))


def entries(made: Place) -> list[tuple[int, int, int, int, int]]:
    """Sequence, partition, first, next and bytes of the rows of each entry."""
    found = []
    for info in made.store.list("_lancewal/wal/"):
        if paths.parse_wal_segment(info.key) is None:
            continue  # a bundle
        segment = decode_segment(made.store.get(info.key) or b"", info.key)
        if isinstance(segment, Segment):
            found += [(segment.sequence, e.region.partition, e.first, e.next, e.rows.nbytes) for e in segment.entries]
    return sorted(found)


def text(size: int) -> Any:
    return lambda key, offset: json.dumps({"k": key, "a": f"{offset}-" + "x" * size}).encode()


def wide(key: int, offset: int) -> bytes:
    return f'{{"k":{key}}}'.encode()


def turns(worker: IngestWorker, made: Place, count: int) -> None:
    for _ in range(count):
        worker.step()
        made.clock.sleep(0.06)


BUDGET = 4 << 20
LIMITS = WorkerLimits(linger_s=0.05, idle_position_s=1e9, segment_bytes=BUDGET // 8)


def few_large(key: int, offset: int) -> bytes:
    return json.dumps({"k": key, "a": "x" * (100_000 if offset % 500 == 0 else 50)}).encode()


@pytest.mark.parametrize(
    ("value", "large"),
    [(text(50), False), (text(5_000), False), (text(50_000), True), (few_large, True)],
    ids=["small", "middling", "large", "few large"],
)
def test_large_records_get_pages_of_their_own_be_they_few(
    value: Any, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in five hundred is most of what is in memory then; without, what these leave is holes."""
    asked: list[None] = []
    monkeypatch.setattr(intake_module, "use_own_pages", lambda: asked.append(None))
    made = place("string", record_bytes_max=200_000)
    made.source = Full(made, value)
    worker = made.worker(SealPolicy(), WorkerLimits(), MemoryPolicy())
    worker.assigned(made.regions(0))
    turns(worker, made, 10)
    assert bool(asked) == large


@pytest.mark.parametrize(
    ("columns", "value"), [("string", text(9_000)), ("fixed_size_list<float32>[1536]", wide)], ids=["long", "wide"]
)
def test_memory_stays_at_its_budget_whatever_records_become(columns: str, value: Any) -> None:
    made, observer = place(columns), MemoryObserver()
    made.source = source = Full(made, value)
    worker = made.worker(SealPolicy(nbytes=BUDGET), LIMITS, MemoryPolicy(BUDGET), observer)
    worker.assigned(made.regions(0))
    worker.step()
    made.store.silent = "_lancewal/pages/"  # no index changes: nothing is sealed, and rows stay where they are
    turns(worker, made, 400)
    largest = decoder_of(made.contract.rows).weights.largest(10_000)
    assert observer.seen[-1][1]  # it is full, and consumes no more
    assert BUDGET / 2 < max(used for used, _ in observer.seen) <= BUDGET + LIMITS.segment_bytes + largest
    held = sum(batch.nbytes for batch in worker._partitions.open[made.region(0)].memtable.batches)
    assert held <= BUDGET
    assert max(nbytes for *_, nbytes in entries(made)) <= LIMITS.segment_bytes
    assert max(source.asked) * 6_144 <= LIMITS.segment_bytes


def test_a_jump_from_small_records_to_large_ones_passes_the_segment_by_one_poll_and_is_cut() -> None:
    made = place("string")
    made.source = source = Full(made, lambda key, offset: text(9_000 if offset >= 2_000 else 10)(key, offset))
    worker = made.worker(limits=LIMITS)
    worker.assigned(made.regions(0))
    turns(worker, made, 60)
    found = entries(made)
    assert max(next_ for *_, next_, _ in found) > 2_500
    assert max(source.asked) > 500
    assert max(nbytes for *_, nbytes in found) <= LIMITS.segment_bytes
    assert [next_ for _, _, _, next_, _ in found[:-1]] == [first for _, _, first, _, _ in found[1:]]


def test_a_record_larger_than_a_segment_has_one_of_its_own() -> None:
    made = place("string", record_bytes_max=1 << 20)
    sizes = {3: 700_000}
    made.source = Full(made, lambda key, offset: text(sizes.get(offset, 10))(key, offset))
    worker = made.worker(limits=LIMITS)
    worker.assigned(made.regions(0))
    turns(worker, made, 40)
    assert (3, 4) in [(first, next_) for _, _, first, next_, _ in entries(made)]
    assert worker.durable[made.region(0)] > 100


def test_behind_a_record_larger_than_a_segment_a_partition_without_records_still_moves() -> None:
    made = place("string", partitions=2, record_bytes_max=1 << 20)

    class Gap(Full):
        """The second partition has no records, but positions that end behind markers."""

        def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
            polled = super().poll(1, timeout_s)
            return Polled(
                {r: records for r, records in polled.records.items() if r == region(0)},
                {**polled.next, region(1): Position(5)},
            )

    made.source = Gap(made, text(700_000))
    worker = made.worker(limits=replace(LIMITS, idle_position_s=0.0))
    worker.assigned(made.regions(*range(2)))
    turns(worker, made, 10)
    assert worker.durable[made.region(0)] > 1
    assert worker.durable[made.region(1)] == 5


def test_a_record_whose_row_no_segment_can_hold_stops_its_partition_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short value can be a large row: null of a vector has the vector's width."""
    for module, name in ((segment, "SEGMENT_ROWS_BYTES_MAX"), (decoder, "ROW_BYTES_MAX")):
        monkeypatch.setattr(module, name, 200_000)
    made = place("list<fixed_size_list<float32>[768]>", partitions=2)
    large: set[tuple[int, int]] = set()
    made.source = source = Full(
        made, lambda key, at: json.dumps({"k": key, "a": [None] * (100 if (key, at) in large else 1)}).encode()
    )
    large.add((source.keys[0], 3))
    worker = made.worker(limits=LIMITS)
    worker.assigned(made.regions(*range(2)))
    turns(worker, made, 20)
    (stopped,) = worker.stopped.items()
    assert (stopped[0], type(stopped[1]), stopped[1].where["offset"]) == (region(0), BadRecord, 3)
    assert "too_large" in str(stopped[1])
    assert worker.durable[made.region(0)] == 3
    assert worker.durable[made.region(1)] > 20


def test_of_a_wide_table_a_segment_has_entries_of_as_many_partitions_as_fit() -> None:
    """What an entry takes beside its rows grows with the columns, and no compression makes it less."""
    made = place(f"struct<{', '.join(f'c{n}: string' for n in range(200))}>", partitions=12)
    made.source = Full(made, wide)
    limits = replace(LIMITS, segment_bytes=128 << 10)
    worker = made.worker(limits=limits)
    worker.assigned(made.regions(*range(12)))
    turns(worker, made, 20)
    assert min(worker.durable.values()) > 1
    assert max(info.size for info in made.store.list("_lancewal/wal/")) <= 2 * limits.segment_bytes


def test_a_segment_that_is_full_keeps_no_partition_waiting_for_ever() -> None:
    made = place("string", partitions=3)
    made.source = Full(made, text(9_000))
    worker = made.worker(limits=LIMITS)
    worker.assigned(made.regions(*range(3)))
    for _ in range(4):
        turns(worker, made, 10)
        positions = sorted(worker.durable.values())
        assert 0 < positions[-1] <= 2 * positions[0] + 60, positions
    of: dict[int, list[tuple[int, int]]] = {}
    for _, partition, first, next_, _ in entries(made):
        of.setdefault(partition, []).append((first, next_))
    assert set(of) == set(range(3))
    for spans in of.values():
        assert all(end == begin for (_, end), (begin, _) in pairwise(spans))


def test_who_has_more_than_a_segment_at_every_turn_keeps_nobody_else_waiting() -> None:
    made = place("string", partitions=2)
    worker = made.worker(limits=LIMITS)
    worker.assigned(made.regions(0, 1))
    source = Full(made, text(9_000))
    polls = []
    for n in range(30):
        many = records_of([source.value(source.keys[0], n * 120 + i) for i in range(120)], n * 120, b"")
        polls.append(Polled({region(0): many}, by_region({0: Position(120 * n + 120), 1: Position(1)})))
    one = records_of([source.value(source.keys[1], 0)])
    polls[0] = Polled({**polls[0].records, region(1): one}, polls[0].next)
    made.source.coming = [Polled({}, {}), *polls]
    turns(worker, made, 8)
    assert made.source.coming  # more is there all the time
    assert worker.durable[made.region(1)] == 1


def test_a_poll_of_small_records_does_not_make_the_next_ones_small() -> None:
    made = place("string")
    made.source = source = Full(made, text(10))
    worker = made.worker(limits=LIMITS)
    worker.assigned(made.regions(0))
    turns(worker, made, 6)
    assert 1 < source.asked[0] <= LIMITS.segment_bytes // 10_000
    assert source.asked[0] < source.asked[1] <= 2 * source.asked[0] + 1


def test_doing_work_again_cuts_at_the_same_records() -> None:
    cuts = []
    for _ in range(2):
        made = place("string")
        made.source = Full(made, lambda key, offset: text(offset * 37 % 9_000)(key, offset))
        worker = made.worker(limits=LIMITS)
        worker.assigned(made.regions(0))
        turns(worker, made, 30)
        cuts.append(entries(made))
    assert cuts[0] == cuts[1]
    assert len(cuts[0]) > 5


def test_what_is_decoded_one_by_one_is_held_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value is many times as large as Python objects."""
    seen: list[int] = []
    decode = ReferenceDecoder.decode

    def spy(self: ReferenceDecoder, values: Sequence[bytes], ops: Ops, indexes: Iterable[int], others: Any) -> object:
        chosen = list(indexes)
        seen.append(sum(len(values[i]) for i in chosen))
        return decode(self, values, ops, chosen, others)

    monkeypatch.setattr(ReferenceDecoder, "decode", spy)
    monkeypatch.setattr(json_decoder, "SINGLY_BYTES", 10_000)
    rows = schema(c="list<float64>")
    # A large integer in a float is doubtful: the slow path decides.
    values = [b'{"k":%d,"c":[9007199254740993.5%s]}' % (k, b",1" * 900) for k in range(40)]
    decoded = decoder_of(rows).decode(records_of(values))
    assert decoded.rows.column("k").to_pylist() == list(range(40))
    assert sum(seen) == sum(map(len, values))
    assert max(seen) <= 10_000


def test_what_weighs_more_than_a_piece_is_decoded_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = schema(c="fixed_size_list<float32>[1536]")
    values = [f'{{"k":{k}}}'.encode() for k in range(100)]
    whole = decoder_of(rows).decode(records_of(values))
    monkeypatch.setattr(decoder, "PIECE_BYTES", 10 * 6_144 + 5_000)
    reader = JsonDecoder(rows)
    many = Decoder(rows, reader, patches=True, record_bytes_max=1 << 20, keys=None)
    read: list[int] = []
    columnar = reader._columns.read

    def spy(chosen: Sequence[bytes], shape: Shape = (), *, other_names: bool = False) -> Columns | None:
        read.append(len(chosen))
        return columnar(chosen, shape, other_names=other_names)

    monkeypatch.setattr(reader._columns, "read", spy)
    assert many.decode(records_of(values)).rows.equals(whole.rows)
    assert max(read) <= 10
    assert sum(read) == 100


def test_a_generation_is_sealed_before_a_column_can_end_arrow_s_offsets() -> None:
    policy = SealPolicy(nbytes=100 << 30, rows=1 << 40, age_s=1e9, log_distance=1 << 40)
    made = place("string")
    made.source = source = Full(made, text(10))
    worker = made.worker(policy, LIMITS, MemoryPolicy(100 << 30))
    worker.assigned(made.regions(0))
    turns(worker, made, 5)
    made.store.silent = "_lancewal/pages/"
    memtable = worker._partitions.open[made.region(0)].memtable
    memtable.nbytes = GENERATION_BYTES_MAX
    assert policy.decide(memtable, memtable.opened_at, memtable.first_length) is SealDecision.SEAL
    turns(worker, made, 50)
    asked = len(source.asked)
    turns(worker, made, 50)
    assert len(source.asked) == asked  # what cannot be sealed grows no more


@pytest.mark.parametrize("memory", [16 << 20, 128 << 20, 256 << 20])
def test_the_client_s_queue_and_one_answer_fit_into_its_part(memory: int) -> None:
    found = bounded_consumer_properties({}, "g", memory)
    queue = int(found["queued.max.messages.kbytes"]) << 10
    for name in ("fetch.max.bytes", "max.partition.fetch.bytes", "message.max.bytes"):
        assert queue + int(found[name]) * 10_000 <= memory
    assert bounded_consumer_properties({"fetch.max.bytes": "5000000"}, "g", memory)["fetch.max.bytes"] == "5000000"


def test_a_broker_waits_a_moment_for_half_of_an_answer_unless_a_person_says_what_it_waits_for() -> None:
    found = bounded_consumer_properties({}, "g", 128 << 20, 300)
    assert found["fetch.min.bytes"] == int(found["fetch.max.bytes"]) // 2
    assert found["fetch.wait.max.ms"] == 25
    for name in ("fetch.max.bytes", "fetch.min.bytes", "fetch.wait.max.ms"):
        found = bounded_consumer_properties({name: "1000"}, "g", 128 << 20, 300)
        waited_for = found.get("fetch.min.bytes", 1), found["fetch.wait.max.ms"]
        assert waited_for == {"fetch.min.bytes": ("1000", 100), "fetch.wait.max.ms": (1, "1000")}.get(name, (1, 100))


def test_with_many_partitions_an_answer_holds_more_but_little_more_of_one() -> None:
    few, many = (bounded_consumer_properties({}, "g", 128 << 20, partitions) for partitions in (64, 300))
    assert int(many["fetch.max.bytes"]) == 24 * int(few["fetch.max.bytes"])
    assert 16_384 <= int(many["max.partition.fetch.bytes"]) == 2 * int(few["max.partition.fetch.bytes"])


@pytest.mark.parametrize(
    ("value", "most"), [(b'"' + b",1e-39" * 30_000 + b'"', 5), (b'"' + b"xe-39" * 30_000 + b'"', 50)]
)
def test_a_value_is_looked_at_in_a_few_places_for_what_decimals_must_not_have(
    value: bytes, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bytes] = []

    class Counting:
        def search(self, part: bytes) -> re.Match[bytes] | None:
            looks.append(part)
            return number.search(part)

    number = hazards._NUMBER
    monkeypatch.setattr(hazards, "_NUMBER", Counting())
    found = hazards.hazardous(
        [b'{"d":1}', value, b'{"d":"1e-39"}', b'{"d":"xe-39"}', None, b'{"d":.' + b"1" * 39 + b"}"]
    )
    assert set(found) == {1, 2, 5}
    assert len(looks) < most
