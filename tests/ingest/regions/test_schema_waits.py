"""Partitions that wait for schemas: a worker on twins, its Kafka driven by hand, and a registry in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from lancewal_core.errors import RegistryRefused, RegistryUnavailable, RetentionLost
from lancewal_core.names.ids import Position, SchemaKey
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.table.contract import Contract
from lancewal_core.wal import writer_schemas
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_core.wal.writer_schemas import SCHEMA_BYTES_MAX, WriterSchema, WriterSchemas
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.kafka.dead_letters import RefusedDeadLetters
from lancewal_ingest.kafka.source import Offsets, Polled
from lancewal_ingest.regions.consumer_pause import ASK_AFTER_S
from lancewal_ingest.regions.policy import MemoryPolicy, SealPolicy
from lancewal_ingest.regions.schema_waits import IDLE_S
from lancewal_ingest.registry.comparison import BAD_S, EVERY_S, SOON_S, TURN_S
from lancewal_ingest.registry.lookups import AGAIN_S, EXPECTED_S, NOT_FOUND_S, PAUSE_S_MAX, SchemaLookups
from lancewal_ingest.service.worker import IngestWorker
from lancewal_kafka.records import Records
from tests.ingest.service.test_worker import AtOnce, Place
from tests.support.fake_registry import JSON, FakeRegistry
from tests.support.regions import by_number

SEVEN, EIGHT = SchemaKey("id-7"), SchemaKey("id-8")


class FramedPlace(Place):
    """A table of framed JSON around one worker."""

    def __init__(self, registry: FakeRegistry, partitions: int = 2, **terms: str) -> None:
        super().__init__(partitions)
        self.registry = registry
        self.contract = self.contract.model_copy(
            update={"value_format": "json-schema", "on_bad_record": "ignore", "on_wrong_format": "dead-letter", **terms}
        )
        self.context = replace(self.context, contract=self.contract)

    def worker_here(self) -> IngestWorker:
        schemas = WriterSchemas(self.store, self.contract.making)
        lookups = SchemaLookups(schemas, self.registry, AtOnce(), self.clock, self._new_id, self.contract)
        self.context = replace(self.context, schemas=lookups)
        worker = self.worker()
        worker.take_up(self._preparer(2), RefusedDeadLetters())
        worker.assigned(list(self.contract.regions))
        worker.step()
        return worker

    def _preparer(self, version: int) -> Preparer:
        contract = self.contract.model_copy(update={"version": version})
        return Preparer(contract, None, self.context.stored_schemas)

    def framed(self, first: int, schemas: list[int], partition: int = 0) -> Polled:
        """Records from an offset on, each of the schema with this number; 0: a record without a frame."""
        here = [k for k in range(10_000) if partition_of(encode_region_key(k), self.contract.partitions) == partition]
        keys = here[: len(schemas)]
        values = [json.dumps({"k": k, "a": "x"}).encode() for k in keys]
        records = Records(
            list(range(first, first + len(keys))),
            [0] * len(keys),
            [encode_region_key(k) for k in keys],
            [b"\0" + n.to_bytes(4) + value if n else value for n, value in zip(schemas, values, strict=True)],
            [None] * len(keys),
        )
        return Polled({self.region(partition): records}, {self.region(partition): Position(first + len(keys))})

    def entries(self) -> list[Entry]:
        """All entries of all logs, in the order in which they were stored."""
        found = [decode_segment(data, key) for key, (data, _, _) in self.bucket._objects.items() if "/wal/" in key]
        return [entry for one in found if isinstance(one, Segment) for entry in one.entries]

    def turns(self, worker: IngestWorker, count: int, seconds: float = 0.0) -> None:
        for _ in range(count):
            self.clock.sleep(seconds)
            worker.step()


def stored(place: FramedPlace) -> Mapping[SchemaKey, object]:
    schemas = WriterSchemas(place.store, place.contract.making)
    return {key: schemas.read(key)[0].kind for key in (SEVEN, EIGHT) if schemas.read(key)}


def durable(worker: IngestWorker) -> dict[int, int]:
    return by_number(worker.durable)


def test_a_schema_is_stored_before_a_row_of_it_is_durable() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 7, 0, 7])]
    place.turns(worker, 4)
    assert durable(worker) == {0: 4, 1: 0}
    assert stored(place) == {SEVEN: "json-schema"}
    assert place.registry.asked[0] == SEVEN
    order = [key.split("/")[1] for key in place.bucket._objects if "/wal/" in key or "/schemas/" in key]
    assert order == ["schemas", "wal"]


def test_a_second_process_does_not_ask_the_registry() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    first = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(first, 4)
    assert first.drain(60.0)
    place.registry.fault = RegistryUnavailable("away")
    worker = place.worker_here()
    place.source.coming = [place.framed(1, [7])]
    place.turns(worker, 4)
    assert durable(worker)[0] == 2


@pytest.mark.parametrize("fault", [RegistryUnavailable("silent"), RegistryRefused("password")])
def test_a_partition_waits_and_others_go_on(fault: RegistryUnavailable) -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 7]), place.framed(0, [7], partition=1)]
    place.turns(worker, 6)
    place.registry.fault = fault
    place.source.coming = [place.framed(2, [7, 8, 7, 8])]
    place.turns(worker, 4)
    assert durable(worker) == {0: 3, 1: 1}
    assert place.source.held == {0}
    ((region, wait),) = worker.schema_waits.items()
    assert (region.partition, wait.schemas, type(wait.error)) == (0, (EIGHT,), type(fault))
    assert str(fault) in str(wait.error)
    assert not worker.idle
    place.source.coming = [place.framed(1, [7, 7], partition=1)]
    place.turns(worker, 4)
    assert durable(worker) == {0: 3, 1: 3}
    place.registry.fault = None
    place.turns(worker, 4, PAUSE_S_MAX)
    assert (durable(worker), worker.schema_waits, place.source.held) == ({0: 6, 1: 3}, {}, set())


def test_a_registry_that_fails_is_asked_less_and_less_often() -> None:
    place = FramedPlace(FakeRegistry())
    worker = place.worker_here()
    place.registry.fault = RegistryUnavailable("silent")
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 600, 0.1)
    assert 8 <= len(place.registry.asked) <= 14


def test_an_unknown_schema_stops_its_partition_until_it_is_registered() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 8, 7])]
    place.turns(worker, 3)
    assert worker.stopped == {}
    place.turns(worker, 3, NOT_FOUND_S / 2)
    ((region, error),) = worker.stopped.items()
    assert (region.partition, error.kind) == (0, "schema_unknown")
    assert error.where == {"schema": "id-8", "topic": "orders", "partition": 0, "offset": 1}
    assert place.registry.asked.count(EIGHT) == 2
    assert durable(worker)[0] == 1
    assert EIGHT not in stored(place)
    place.registry.has[EIGHT] = JSON
    place.turns(worker, 3, AGAIN_S)
    assert worker.stopped == {}
    place.source.coming = [place.framed(1, [8, 7])]
    place.turns(worker, 3)
    assert durable(worker)[0] == 3


def test_silence_between_two_answers_is_not_an_answer() -> None:
    place = FramedPlace(FakeRegistry())
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [8])]
    place.turns(worker, 2)
    place.registry.fault = RegistryUnavailable("silent")
    place.turns(worker, 10, NOT_FOUND_S)
    assert worker.stopped == {}
    place.registry.fault, place.registry.has[EIGHT] = None, JSON
    place.turns(worker, 4, PAUSE_S_MAX)
    # The long wait had the partition opened again, from its durable position.
    place.source.coming = [place.framed(0, [8])]
    place.turns(worker, 4)
    assert durable(worker)[0] == 1


def test_under_dead_letter_an_unknown_schema_stays_unknown() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON), on_unknown_schema="dead-letter")
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 8, 7])]
    place.turns(worker, 8, NOT_FOUND_S / 2)
    assert durable(worker)[0] == 3
    assert stored(place) == {SEVEN: "json-schema", EIGHT: "unknown"}
    place.registry.has[EIGHT] = JSON
    again = place.worker_here()
    place.source.coming = [place.framed(3, [8])]
    place.turns(again, 4)
    assert durable(again)[0] == 4
    assert stored(place)[EIGHT] == "unknown"
    rejected = [r.offset for entry in place.entries() for r in entry.rejected if r.kind == "unknown_schema"]
    assert rejected == [1, 3]


def test_the_policy_may_change_while_a_partition_is_stopped() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 8, 7])]
    place.turns(worker, 6, NOT_FOUND_S / 2)
    assert [error.kind for error in worker.stopped.values()] == ["schema_unknown"]
    place.contract = place.contract.model_copy(update={"on_unknown_schema": "dead-letter"})
    worker.take_up(place._preparer(3), RefusedDeadLetters())
    place.turns(worker, 2)
    assert worker.stopped == {}
    place.source.coming = [place.framed(1, [8, 7])]
    place.turns(worker, 8, NOT_FOUND_S / 2)
    assert durable(worker)[0] == 3


def test_another_process_has_stored_another_schema() -> None:
    place = FramedPlace(FakeRegistry(id_7=WriterSchema("json-schema", '{"type": "array"}')))
    worker = place.worker_here()
    theirs = WriterSchemas(place.store, place.contract.making)

    class Racing(FakeRegistry):
        def schema(self, key: SchemaKey) -> WriterSchema | None:
            theirs.put_first(key, JSON, place.clock, place._new_id)
            return super().schema(key)

    place.context.schemas._registry = Racing(id_7=WriterSchema("json-schema", "{}"))  # type: ignore[union-attr] # set above
    place.source.coming = [place.framed(0, [7]), place.framed(0, [0], partition=1)]
    place.turns(worker, 6)
    ((region, error),) = worker.stopped.items()
    assert (region.partition, error.kind, error.where["offset"]) == (0, "schema_id_reused", 0)
    assert durable(worker) == {0: 0, 1: 1}


def test_a_schema_that_is_too_large_stops_its_partition() -> None:
    place = FramedPlace(FakeRegistry(id_7=WriterSchema("json-schema", "x" * (SCHEMA_BYTES_MAX + 1))))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 4)
    assert [error.kind for error in worker.stopped.values()] == ["too_many_schemas"]
    place.contract = place.contract.model_copy(update={"on_unknown_schema": "dead-letter"})
    worker.take_up(place._preparer(3), RefusedDeadLetters())
    place.turns(worker, 3)
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 4)
    assert (worker.stopped, durable(worker)[0], stored(place)) == ({}, 1, {SEVEN: "unknown"})
    place.turns(worker, 3, EVERY_S)
    assert worker.stopped == {}


def test_records_of_one_schema_too_many_can_be_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_schemas, "SCHEMAS_MAX", 1)
    place = FramedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 8, 7])]
    place.turns(worker, 8)
    ((_, error),) = worker.stopped.items()
    assert (error.kind, durable(worker)[0]) == ("too_many_schemas", 1)
    assert "lancewal table alter --on unknown-schema=dead-letter" in str(error)
    place.contract = place.contract.model_copy(update={"on_unknown_schema": "dead-letter"})
    worker.take_up(place._preparer(3), RefusedDeadLetters())
    place.turns(worker, 3)
    place.source.coming = [place.framed(1, [8, 7])]
    place.turns(worker, 4)
    assert (worker.stopped, durable(worker)[0]) == ({}, 3)
    assert stored(place) == {SEVEN: "json-schema", EIGHT: "unknown"}
    assert [one.offset for entry in place.entries() for one in entry.rejected] == [1]


def test_after_a_long_wait_the_partition_is_opened_again() -> None:
    place = FramedPlace(FakeRegistry())
    worker = place.worker_here()
    place.registry.fault = RegistryUnavailable("silent")
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 3)
    place.source.ends[0] = Offsets(Position(5), Position(9))
    place.turns(worker, 10, ASK_AFTER_S / 5)
    place.registry.fault, place.registry.has[SEVEN] = None, JSON
    place.turns(worker, 4, PAUSE_S_MAX)
    assert [error.kind for error in worker.stopped.values()] == ["retention_lost"]


def test_records_that_wait_hold_nothing_up_at_the_end() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 7, 8])]
    place.turns(worker, 2)
    assert worker.drain(60.0)
    assert [entry.next for entry in place.entries()] == [2]


def test_a_table_without_a_registry_works_with_what_is_stored() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    first = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(first, 4)
    assert first.drain(60.0)
    place.registry = None  # type: ignore[assignment] # registry.url is not set
    worker = place.worker_here()
    place.source.coming = [place.framed(1, [7, 8])]
    place.turns(worker, 4)
    assert durable(worker)[0] == 2
    ((_, wait),) = worker.schema_waits.items()
    assert "registry.url is not set" in str(wait.error)


OTHER = WriterSchema("json-schema", '{"type": "array"}')


def test_an_id_that_gets_another_schema_stops_the_partitions_that_use_it() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON, id_8=JSON), partitions=3)
    worker = place.worker_here()
    place.source.coming = [
        place.framed(0, [7, 7]),
        place.framed(0, [8], partition=1),
        place.framed(0, [0], partition=2),
    ]
    place.turns(worker, 6)
    place.turns(worker, 3, EVERY_S)
    place.source.coming = [place.framed(2, [7, 8, 7])]
    place.turns(worker, 2)
    assert (durable(worker), worker.stopped) == ({0: 5, 1: 1, 2: 1}, {})
    place.registry.has[SEVEN] = OTHER
    place.turns(worker, 2, EVERY_S)
    ((region, error),) = worker.stopped.items()
    assert (region.partition, error.kind) == (0, "schema_id_reused")
    assert "offsets 1 to 4" in str(error)
    assert f"`lancewal schema accept id-7`, with --dry-run to see both. With `--from {region.topic}-0-1` rec" in str(
        error
    )
    place.source.coming = [place.framed(1, [8, 7], partition=1), place.framed(1, [0], partition=2)]
    place.turns(worker, 4)
    assert (durable(worker)[1], durable(worker)[2]) == (2, 2)
    assert {region.partition for region in worker.stopped} == {0, 1}
    place.registry.has[SEVEN] = JSON
    place.turns(worker, 4, AGAIN_S)
    assert worker.stopped == {}
    place.source.coming = [place.framed(5, [7]), place.framed(2, [7], partition=1)]
    place.turns(worker, 4)
    assert durable(worker) == {0: 6, 1: 3, 2: 2}


def damaged(polled: Polled) -> Polled:
    """The same records, each with a value that is no JSON."""
    records = {
        region: replace(found, values=[b"" if value is None else value[:-1] for value in found.values])
        for region, found in polled.records.items()
    }
    return replace(polled, records=records)


@pytest.mark.parametrize("policy", ["ignore", "stop"])
def test_a_schema_is_compared_once_its_records_are_bad(policy: str) -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON, id_8=JSON), on_bad_record=policy)
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 7]), place.framed(0, [8], partition=1)]
    place.turns(worker, 6, SOON_S)
    place.registry.has[SEVEN] = OTHER
    place.turns(worker, 6, SOON_S)
    assert worker.stopped == {}
    place.source.coming = [damaged(place.framed(2, [7]))]
    place.turns(worker, 6)
    ((region, error),) = worker.stopped.items()
    assert (region.partition, error.kind) == (0, "schema_id_reused")
    assert "offsets 1 to 2" in str(error)
    place.registry.has[SEVEN] = JSON
    place.turns(worker, 4, AGAIN_S)
    assert worker.stopped == {}
    place.source.coming = [damaged(place.framed(2, [7]))]
    place.turns(worker, 4)
    assert [error.kind for error in worker.stopped.values()] == ["bad_record"] * (policy == "stop")


def test_bad_records_ask_the_registry_now_and_then() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 7]), place.framed(0, [8], partition=1)]
    place.turns(worker, 6, SOON_S)
    place.turns(worker, 2, EVERY_S)
    place.registry.asked.clear()
    for number in range(int(2 * BAD_S)):
        place.source.coming = [damaged(place.framed(2 + number, [7]))]
        place.turns(worker, 1, 1.0)
    assert set(place.registry.asked) == {SEVEN}
    assert 1 <= len(place.registry.asked) <= 3
    assert durable(worker)[0] >= 2 * BAD_S


def test_a_new_schema_is_compared_without_the_others() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 6, SOON_S)
    place.registry.asked.clear()
    place.source.coming = [place.framed(1, [8])]
    place.turns(worker, 6, SOON_S)
    assert place.registry.asked == [EIGHT, EIGHT], "looked up, and compared"


def test_a_silent_registry_is_asked_ever_more_seldom() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    first = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(first, 4)
    assert first.drain(60.0)
    place.registry.fault = RegistryUnavailable("silent")
    worker = place.worker_here()
    place.source.coming = [place.framed(1, [7])]
    place.registry.asked.clear()
    place.turns(worker, 300, SOON_S)
    assert 4 <= len(place.registry.asked) <= 16
    place.registry.fault, place.registry.has[SEVEN] = None, OTHER
    place.turns(worker, 70, SOON_S)
    assert [error.kind for error in worker.stopped.values()] == ["schema_id_reused"]


def test_the_loop_looks_often_while_a_schema_is_asked_for() -> None:
    timeouts: list[float] = []
    place = FramedPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    poll = place.source.poll

    def noted(records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        timeouts.append(timeout_s)
        return poll(records_max, timeout_s, gather_s)

    place.source.poll = noted  # type: ignore[method-assign] # of this one
    place.registry.fault = RegistryUnavailable("silent")
    # The answer of a task is looked at once no segment is under way.
    place.source.coming = [place.framed(0, [0, 7])]
    with patch.object(SchemaLookups, "advance", return_value=[]):
        place.turns(worker, 4)
        assert max(timeouts[2:]) == 0.01
        place.turns(worker, 4, EXPECTED_S)
    assert timeouts[-1] == 0.1


def test_a_schema_without_records_is_not_in_use_for_ever() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7]), place.framed(0, [8], partition=1)]
    place.turns(worker, 6, SOON_S)
    for number in range(1, 5):
        place.source.coming = [place.framed(number, [8], partition=1)]
        place.turns(worker, 2, IDLE_S / 2)
    place.registry.asked.clear()
    place.registry.has[SEVEN] = OTHER
    place.turns(worker, 4, EVERY_S)
    assert (set(place.registry.asked), worker.stopped) == ({EIGHT}, {})
    place.source.coming = [place.framed(1, [7])]
    place.turns(worker, 4, SOON_S)
    ((region, error),) = worker.stopped.items()
    assert (region.partition, error.kind) == (0, "schema_id_reused")
    assert "offsets 1 to 1" in str(error)


def test_a_partition_that_has_left_is_not_looked_after() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7]), place.framed(0, [8], partition=1)]
    place.turns(worker, 6, SOON_S)
    worker.revoked([place.region(0)])
    place.turns(worker, 2, EVERY_S)
    place.registry.asked.clear()
    place.turns(worker, 2, EVERY_S)
    assert set(place.registry.asked) == {EIGHT}


def test_a_schema_that_a_registry_forgot_or_cannot_tell_stops_nothing() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 4)
    del place.registry.has[SEVEN]
    place.turns(worker, 4, EVERY_S)
    place.registry.fault = RegistryUnavailable("silent")
    place.turns(worker, 4, EVERY_S)
    place.source.coming = [place.framed(1, [7])]
    place.turns(worker, 4)
    assert (durable(worker)[0], worker.stopped) == (2, {})


def test_a_process_that_starts_compares_what_is_stored() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    first = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(first, 4)
    assert first.drain(60.0)
    place.registry.has[SEVEN] = OTHER
    worker = place.worker_here()
    place.source.coming = [place.framed(1, [7])]
    place.turns(worker, 4, 2.0)
    assert [error.kind for error in worker.stopped.values()] == ["schema_id_reused"]


def test_a_schema_without_an_answer_keeps_no_other_from_being_compared() -> None:
    class Partly(FakeRegistry):
        broken: SchemaKey | None = None

        def schema(self, key: SchemaKey) -> WriterSchema | None:
            if key == self.broken:
                raise RegistryUnavailable("a reference is gone")
            return super().schema(key)

    registry = Partly(id_7=JSON, id_8=JSON)
    place = FramedPlace(registry)
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7]), place.framed(0, [8], partition=1)]
    place.turns(worker, 6)
    registry.broken = SEVEN
    registry.has[EIGHT] = OTHER
    place.turns(worker, 6, EVERY_S)
    assert {r.partition: error.kind for r, error in worker.stopped.items()} == {1: "schema_id_reused"}


def test_a_partition_that_stops_while_it_waits_stays_open() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON), on_bad_record="stop")
    worker = place.worker_here()
    place.registry.fault = RegistryUnavailable("silent")
    place.source.coming = [place.framed(0, [8])]
    place.turns(worker, 4)
    place.source.coming = [RetentionLost("1 is gone", topic="orders", partition=0)]
    place.turns(worker, 4)
    assert (durable(worker)[0], [error.kind for error in worker.stopped.values()]) == (0, ["retention_lost"])
    place.turns(worker, 4, ASK_AFTER_S)
    place.registry.fault, place.registry.has[EIGHT] = None, JSON
    place.turns(worker, 6, PAUSE_S_MAX)
    # Kafka may have lost the consumed record too.
    assert (durable(worker)[0], [error.kind for error in worker.stopped.values()]) == (1, ["retention_lost"])


def test_a_bad_record_before_a_record_that_waits() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON), on_bad_record="stop")
    worker = place.worker_here()
    place.registry.fault = RegistryUnavailable("silent")
    place.source.coming = [place.framed(0, [0, 8])]
    place.turns(worker, 4)
    assert [error.kind for error in worker.stopped.values()] == ["bad_record"]
    assert (worker.schema_waits, worker.idle) == ({}, True)


def test_an_answer_of_long_ago_is_none() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON), on_unknown_schema="dead-letter")
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [8])]
    place.turns(worker, 3)
    worker.revoked([place.region()])
    place.turns(worker, 10, NOT_FOUND_S)
    worker.assigned([place.region()])
    place.turns(worker, 2)
    place.source.coming = [place.framed(0, [8])]
    place.turns(worker, 3)
    assert EIGHT not in stored(place)


def test_records_of_another_format_are_given_back() -> None:
    """The format of values is altered while the first records are decoded."""
    place = FramedPlace(FakeRegistry(id_7=JSON), value_format="json")
    worker = place.worker_here()
    terms = worker.terms

    def find(contract: object, fields: object) -> Contract | None:
        if worker.terms is not terms:
            return None
        return place.contract.model_copy(update={"version": 3, "value_format": "json-schema"})

    worker._new_columns.find = find  # type: ignore[method-assign] # a contract that somebody has altered
    place.source.coming = [place.framed(0, [7, 7]), place.framed(0, [7], partition=1)]
    place.turns(worker, 10, 1.0)
    assert (durable(worker), worker.stopped) == ({0: 2, 1: 1}, {})
    assert [one for entry in place.entries() for one in entry.rejected] == []


def test_records_that_are_read_once_more_are_named() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7]), place.framed(1, [8, 7, 7])]
    place.turns(worker, 5)
    place.turns(worker, 3, EVERY_S)
    assert [error.kind for error in worker.stopped.values()] == ["schema_unknown"]
    place.registry.has[EIGHT] = JSON
    place.turns(worker, 5, AGAIN_S / 2)
    assert worker.stopped == {}
    place.source.coming = [place.framed(1, [8, 7])]
    place.turns(worker, 1)
    place.registry.has[SEVEN] = OTHER
    place.turns(worker, 3, EVERY_S)
    ((_, error),) = worker.stopped.items()
    assert "offsets 2 to 3" in str(error)


def test_records_that_wait_are_weighed_as_they_came() -> None:
    class Small(FramedPlace):
        def worker(self, *_: Any, **__: Any) -> IngestWorker:
            return super().worker(memory=MemoryPolicy(nbytes=64 << 20))

    place = Small(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.registry.fault = RegistryUnavailable("silent")
    polled = place.framed(0, [8] * 30)
    values = polled.records[place.region()].values
    for at, value in enumerate(values):
        values[at] = (value or b"") + b" " * 100_000
    place.source.coming = [polled]
    place.turns(worker, 4, 1.0)
    assert 3_000_000 < worker._intake.waiting[1] < 4_000_000
    assert (worker.throttled, place.source.held) == (False, {0})
    place.registry.fault, place.registry.has[EIGHT] = None, JSON
    place.turns(worker, 6, PAUSE_S_MAX)
    assert (durable(worker)[0], worker._intake.waiting) == (30, (0, 0))


def test_a_slow_registry_is_asked_for_some_schemas_at_a_time() -> None:
    class Slow(FakeRegistry):
        def schema(self, key: SchemaKey) -> WriterSchema | None:
            place.clock.sleep(TURN_S / 2.5)
            return super().schema(key)

    registry = Slow(**{f"id_{number}": JSON for number in range(1, 9)})
    place = FramedPlace(registry)
    worker = place.worker_here()
    place.source.coming = [place.framed(0, list(range(1, 9)))]
    place.turns(worker, 8, 1.0)
    registry.asked.clear()
    worker.step()
    assert len(registry.asked) == 3
    place.turns(worker, 2, SOON_S)
    assert set(registry.asked[:8]) == registry.has.keys()


def test_a_version_that_counts_and_is_lost_stops_its_partitions_alone() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    first = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(first, 4)
    assert first.drain(60.0)
    place.contract = place.contract.model_copy(update={"schema_versions": {SEVEN: 2}})
    worker = place.worker_here()
    place.source.coming = [place.framed(1, [7]), place.framed(0, [0], partition=1)]
    place.turns(worker, 6)
    assert {r.partition: error.kind for r, error in worker.stopped.items()} == {0: "object_missing"}
    assert durable(worker) == {0: 1, 1: 1}


def test_a_partition_is_not_opened_again_while_its_seal_has_no_answer() -> None:
    class Sealing(FramedPlace):
        def worker(self, *_: Any, **__: Any) -> IngestWorker:
            return super().worker(seal=SealPolicy(rows=1))

    place = Sealing(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 4)
    place.registry.fault = RegistryUnavailable("silent")
    place.store.silent = "_lancewal/pages/"
    place.source.coming = [place.framed(1, [7, 8])]
    place.turns(worker, 3)
    place.turns(worker, 4, ASK_AFTER_S / 2)
    place.registry.fault, place.registry.has[EIGHT] = None, JSON
    place.turns(worker, 4, PAUSE_S_MAX)
    assert durable(worker) == {0: 2, 1: 0}
    place.store.silent = None
    place.turns(worker, 4, 1.0)
    place.source.coming = [place.framed(2, [8])]
    place.turns(worker, 4, 1.0)
    assert durable(worker) == {0: 3, 1: 0}


def test_a_damaged_object_that_is_put_back_lets_partitions_go_on() -> None:
    place = FramedPlace(FakeRegistry(id_7=JSON))
    first = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(first, 4)
    assert first.drain(60.0)
    objects, (key,) = place.bucket._objects, [key for key in place.bucket._objects if "/schemas/" in key]
    sound = objects[key]
    objects[key] = (b"{", *sound[1:])
    worker = place.worker_here()
    place.source.coming = [place.framed(1, [7])]
    place.turns(worker, 4)
    assert [error.kind for error in worker.stopped.values()] == ["object_corrupt"]
    objects[key] = sound
    place.turns(worker, 3, AGAIN_S)
    place.source.coming = [place.framed(1, [7])]
    place.turns(worker, 4)
    assert (worker.stopped, durable(worker)[0]) == ({}, 2)
