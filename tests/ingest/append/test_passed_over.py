"""Records that are neither a row nor bad: gaps of an entry, which nothing is asked about."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from lancewal_core.errors import BadRecord, Misrouted, WrongFormat
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.process.clock import SystemClock
from lancewal_core.record_keys.key_choices import KeyFormat
from lancewal_core.rows.schema import Op
from lancewal_core.settings.sections import Policy
from lancewal_core.table.contract import Column, Contract
from lancewal_core.table.drain import Drain
from lancewal_core.wal.entry import FIRST_RECORDS, NoRowYet
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_ingest.decode.outcomes import PASSED_OVER
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_kafka.records import Records
from lancewal_reader.table import open_table
from tests.support.format_with_heartbeats import HEARTBEATS, values_have_heartbeats
from tests.support.pipeline import Pipeline, by_key
from tests.support.silent_observer import SilentObserver

HERE = Region("t", TopicId("i"), 0)
HEARTBEAT, BEGIN = HEARTBEATS
NO_KEY = None
Sent = tuple[bytes | None, bytes | None]


@pytest.fixture(autouse=True)
def _heartbeats() -> Iterator[None]:
    with values_have_heartbeats():
        yield


def contract_of(key_format: KeyFormat = "canonical", policy: Policy = "stop", partitions: int = 4) -> Contract:
    return Contract(
        table_uuid="u", topic="t", topic_id="i", partitions=partitions, primary_key=("id",),
        region_key=() if key_format == "bytes" else ("id",), key_format=key_format, start=(0,) * partitions,
        columns=(Column(name="id", type="int64", field_ids=(0,)), Column(name="s", type="string", field_ids=(1,))),
        on_bad_record=policy, on_misrouted=policy,
    )  # fmt: skip


def keys_of(contract: Contract, partition: int = 0) -> list[int]:
    """Keys of the partition."""
    return [k for k in range(200) if contract.partition_of(_key(contract, k)) == partition]


def _key(contract: Contract, k: int) -> bytes:
    return b'{"id":%d}' % k if contract.key_format in ("json", "json-compact") else b"%d" % k


def row(contract: Contract, k: int) -> Sent:
    return _key(contract, k), b'{"id": %d, "s": "x"}' % k


def consumed(sent: Sequence[Sent], first: int = 10, no_row_yet: NoRowYet | None = None) -> Consumed:
    offsets = list(range(first, first + len(sent)))
    records = Records(offsets, offsets, [k for k, _ in sent], [v for _, v in sent], [None] * len(sent))
    return Consumed(HERE, Position(first), Position(first + len(sent)), records, no_row_yet=no_row_yet)


@pytest.mark.parametrize("key_format", ["canonical", "bytes", "json", "json-compact"])
@pytest.mark.parametrize("policy", ["stop", "dead-letter", "ignore"])
def test_they_are_gaps_whatever_their_keys_are(key_format: KeyFormat, policy: Policy) -> None:
    contract = contract_of(key_format, policy)
    a, b, *_ = keys_of(contract)
    elsewhere = _key(contract, keys_of(contract, 1)[0])
    sent = [
        (NO_KEY, HEARTBEAT),
        row(contract, a),
        (elsewhere, HEARTBEAT),
        (b"{", BEGIN),
        row(contract, b),
        (b"", BEGIN),
    ]
    (found,) = Preparer(contract).prepare_all([consumed(sent)])
    entry, letters, stop = found.outcome
    assert entry is not None
    assert (entry.first, entry.next, entry.rejected, letters, stop) == (10, 16, (), (), None)
    assert entry.rows.column("_offset").to_pylist() == [11, 14]
    assert entry.rows.column("id").to_pylist() == [a, b]
    assert found.passed_over == {"heartbeat": 2, "transaction": 2}


def test_an_entry_may_have_nothing_else() -> None:
    (found,) = Preparer(contract_of()).prepare_all([consumed([(NO_KEY, HEARTBEAT)] * 3)])
    entry, letters, stop = found.outcome
    assert entry is not None
    assert (entry.first, entry.next, entry.row_count, entry.rejected, letters, stop) == (10, 13, 0, (), (), None)
    assert entry.rows.schema == contract_of().rows.wal


def test_of_several_regions_each_has_its_own_gaps() -> None:
    """Rejected records lie between them, so that those of one region might be taken for another's."""
    contract = contract_of(policy="dead-letter")
    by_partition: list[list[Sent]] = [
        [(NO_KEY, HEARTBEAT), row(contract, keys_of(contract, p)[0]), (b"1", b"{"), (NO_KEY, BEGIN), (b"2", b"[]")][p:]
        for p in range(4)
    ]
    parts = []
    for p, sent in enumerate(by_partition):
        one = consumed(sent)
        parts.append(Consumed(Region("t", TopicId("i"), p), one.first, one.next, one.records))
    together = Preparer(contract).prepare_all(parts)
    for found, one in zip(together, parts, strict=True):
        alone = Preparer(contract).prepare(one)
        assert (found.outcome.entry, found.outcome.letters) == (alone.entry, alone.letters)
    assert [[r.kind for r in f.outcome.letters] for f in together] == [["not_json", "not_an_object"]] * 3 + [
        ["not_an_object"]
    ]
    assert sum(f.passed_over.get("heartbeat", 0) for f in together) == 1
    assert sum(f.passed_over.get("transaction", 0) for f in together) == 4


def test_they_are_neither_rows_nor_bad_for_the_first_records() -> None:
    contract = contract_of(policy="dead-letter")
    many: list[Sent] = [(NO_KEY, HEARTBEAT)] * (2 * FIRST_RECORDS)
    entry, letters, stop = Preparer(contract).prepare(consumed(many, no_row_yet=NoRowYet()))
    assert entry is not None
    assert (entry.next, letters, stop) == (10 + len(many), (), None)
    assert NoRowYet.of([entry]) == NoRowYet()
    between: list[Sent] = [one for _ in range(FIRST_RECORDS) for one in ((NO_KEY, HEARTBEAT), (b"1", b"{"))]
    entry, letters, stop = Preparer(contract).prepare(consumed(between, no_row_yet=NoRowYet()))
    assert entry is not None
    assert (entry.next, len(letters)) == (10 + 2 * FIRST_RECORDS - 1, FIRST_RECORDS - 1)
    assert stop is not None
    assert isinstance(stop.error, WrongFormat)


def test_the_record_that_stops_is_the_next_one_that_is_bad() -> None:
    contract = contract_of()
    elsewhere = row(contract, keys_of(contract, 1)[0])
    for bad, error in ((elsewhere, Misrouted), ((b"1", b"{"), BadRecord)):
        entry, letters, stop = Preparer(contract).prepare(consumed([(NO_KEY, HEARTBEAT), bad, (NO_KEY, HEARTBEAT)]))
        assert entry is not None
        assert (entry.next, letters) == (11, ())
        assert stop is not None
        assert (type(stop.error), stop.error.where["offset"]) == (error, 11)


def test_a_drained_partition_goes_on_beside_them() -> None:
    """Their keys may belong here by the topic's number of partitions: they end no drain."""
    contract = contract_of()
    drain = Drain(contract_version=1, partitions=8, to=(100,) * 4, write_id="w")
    a = keys_of(contract)[0]
    sent = [(b"%d" % k, HEARTBEAT) for k in range(40)] + [row(contract, a)]
    entry, letters, stop = Preparer(contract, drain).prepare(consumed(sent))
    assert entry is not None
    assert (entry.next, entry.row_count, letters, stop) == (51, 1, (), None)


def test_a_tombstone_is_never_passed_over() -> None:
    """It deletes, beside a heartbeat of the same key too."""
    contract = contract_of()
    key = _key(contract, keys_of(contract)[0])
    (found,) = Preparer(contract).prepare_all([consumed([(key, HEARTBEAT), (key, None)])])
    assert found.outcome.entry is not None
    assert found.outcome.entry.rows.column("_op").to_pylist() == [int(Op.DELETE)]
    assert found.passed_over == {"heartbeat": 1}


class Told(SilentObserver):
    def __init__(self) -> None:
        self.passed = Counter[str]()

    def passed_over(self, records: Mapping[str, int]) -> None:
        self.passed.update(records)


def test_a_table_has_the_rows_around_them(tmp_path: Path) -> None:
    """Some entries have nothing else, owners die, and the WAL is read again."""
    told = Told()
    pipeline = Pipeline(tmp_path, partitions=2, batch=3, seal_rows=25, observer=told, on_misrouted="stop")
    rng, sent = random.Random(4), Counter[str]()
    for _ in range(6):
        for _ in range(20):
            pipeline.produce(1, regions=4, ids=5)
            for _ in range(rng.choice([0, 0, 1, 9])):
                value = rng.choice([HEARTBEAT, BEGIN])
                pipeline._messages[rng.randrange(2)].append((rng.choice([b"", b"r1", b"{"]), value, "upsert"))
                sent[HEARTBEATS[value]] += 1
        pipeline.ingest()
        assert told.passed == sent
        pipeline.replace_worker()
        pipeline.ingest()
        assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    pipeline.merge_all()
    assert by_key(open_table(pipeline.uri).to_arrow(consistency="eventual")) == pipeline.oracle
    assert told.passed == sent, "counted twice"


def test_the_metric_counts_them_by_kind() -> None:
    metrics = IngestMetrics(SystemClock(), "orders", 1, IngestEvents(table="orders"))
    metrics.passed_over({"heartbeat": 2, "transaction": 1})
    metrics.passed_over({"heartbeat": 3})
    found = {
        sample.labels["kind"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "lancewal_ingest_records_passed_over_total"
    }
    assert found == {**dict.fromkeys(PASSED_OVER, 0), "heartbeat": 5, "transaction": 1}
