"""Keys that name schemas: a worker on twins, from the first key of a table to the first one of another schema."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lancewal_core.errors import KeyFormChanged, RegistryUnavailable, SchemaIdReused
from lancewal_core.names import paths
from lancewal_core.names.ids import Position
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.table.contract import Contract, encode_contract, newest_contract, put_next
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.kafka.dead_letters import RefusedDeadLetters
from lancewal_ingest.kafka.source import Polled
from lancewal_ingest.registry.comparison import EVERY_S
from lancewal_ingest.registry.lookups import PAUSE_S_MAX
from lancewal_ingest.service.worker import IngestWorker
from lancewal_kafka.records import Records
from tests.ingest.regions.test_schema_waits import EIGHT, SEVEN, FramedPlace, durable, stored
from tests.support.fake_registry import JSON, FakeRegistry
from tests.support.regions import by_number


def key_of(k: int, schema: int) -> bytes:
    return b"\0" + schema.to_bytes(4) + json.dumps({"k": k}).encode()


class KeyedPlace(FramedPlace):
    """A table of plain JSON whose keys are JSON behind a frame; its contract has two versions, and no form of keys."""

    def __init__(self, registry: FakeRegistry) -> None:
        super().__init__(registry, value_format="json", key_format="json-schema", on_bad_record="dead-letter")
        self.contract = self.contract.model_copy(update={"format": 2})
        for version in (1, 2):
            one = self.contract.model_copy(update={"version": version})
            self.store.put_if_absent(paths.contract_version(version, None), encode_contract(one))

    def newest(self) -> Contract:
        found = newest_contract(self.store)
        assert found is not None
        return found

    def _preparer(self, version: int) -> Preparer:
        return Preparer(self.newest(), None, self.context.stored_schemas)

    def alter(self, worker: IngestWorker, **terms: object) -> None:
        """Somebody alters the contract, and the worker takes it up."""
        old = self.newest()
        put_next(self.store, self.clock, old, old.model_copy(update={"version": old.version + 1, **terms}))
        worker.take_up(self._preparer(0), RefusedDeadLetters())

    def keyed(self, first: int, schemas: Sequence[int], partition: int = 0, *, deletes: bool = False) -> Polled:
        """Records from an offset on, each with a key of the schema with this number, in its partition."""
        keys = [
            next(
                (k, key)
                for k in range(1000 * (first + place), 1000 * (first + place + 1))
                if partition_of(key := key_of(k, schema), self.contract.partitions) == partition
            )
            for place, schema in enumerate(schemas)
        ]
        offsets = list(range(first, first + len(keys)))
        values = [None if deletes else json.dumps({"k": k, "a": "x"}).encode() for k, _ in keys]
        records = Records(offsets, [0] * len(keys), [key for _, key in keys], values, [None] * len(keys))
        return Polled({self.region(partition): records}, {self.region(partition): Position(first + len(keys))})


def kinds(worker: IngestWorker) -> dict[int, str]:
    return {partition: error.kind for partition, error in by_number(worker.stopped).items()}


def test_schema_and_form_are_stored_before_the_first_row() -> None:
    place = KeyedPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.keyed(0, [7, 7])]
    place.turns(worker, 4)
    assert (durable(worker), kinds(worker)) == ({0: 2, 1: 0}, {})
    assert stored(place) == {SEVEN: "json-schema"}
    assert (place.newest().version, place.newest().key_forms) == (3, ("id-7",))
    assert [entry.contract_version for entry in place.entries()] == [3]
    order = [key for key in place.bucket._objects if any(part in key for part in ("/wal/", "/schemas/", "/contract/"))]
    assert ["schemas" in order[-3], "contract" in order[-2], "/wal/" in order[-1]] == [True] * 3


def test_a_key_waits_for_its_schema_as_a_value_does() -> None:
    place = KeyedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.registry.fault = RegistryUnavailable("silent")
    place.source.coming = [place.keyed(0, [7]), place.keyed(0, [7], partition=1, deletes=True)]
    place.turns(worker, 4)
    assert (durable(worker), place.source.held) == ({0: 0, 1: 0}, {0, 1})
    assert place.newest().key_forms == ()
    place.registry.fault = None
    place.turns(worker, 4, PAUSE_S_MAX)
    assert (durable(worker), worker.schema_waits, place.source.held) == ({0: 1, 1: 1}, {}, set())


def test_a_key_of_another_schema_stops_its_partition_until_a_person_takes_it() -> None:
    place = KeyedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.source.coming = [place.keyed(0, [7]), place.keyed(0, [7], partition=1)]
    place.turns(worker, 4)
    place.source.coming = [place.keyed(1, [8, 7])]
    place.turns(worker, 6)
    assert (durable(worker), kinds(worker)) == ({0: 1, 1: 1}, {0: "key_form_changed"})
    (error,) = worker.stopped.values()
    assert isinstance(error, KeyFormChanged)
    assert error.where["offset"] == 1
    assert "the table's keys have id-7" in str(error)
    place.source.coming = [place.keyed(1, [7], partition=1)]
    place.turns(worker, 4)
    assert durable(worker) == {0: 1, 1: 2}
    place.alter(worker, on_bad_record="ignore")
    place.source.coming = [Polled({}, {}), place.keyed(1, [8, 7])]
    place.turns(worker, 6)
    assert (durable(worker)[0], kinds(worker)) == (1, {0: "key_form_changed"})
    place.alter(worker, key_forms=("id-7", "id-8"))
    place.source.coming = [Polled({}, {}), place.keyed(1, [8, 7])]
    place.turns(worker, 6)
    assert (durable(worker), kinds(worker)) == ({0: 3, 1: 2}, {})


def test_a_form_that_another_process_has_taken_counts() -> None:
    """Also where the process works by a version without it, and where its own first key is of another one."""
    place = KeyedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    old = place.newest()
    put_next(place.store, place.clock, old, old.model_copy(update={"version": 3, "key_forms": ("id-8",)}))
    place.source.coming = [place.keyed(0, [7]), place.keyed(0, [8], partition=1)]
    place.turns(worker, 6)
    place.source.coming = [place.keyed(0, [7])]  # it was opened again when the version was taken up
    place.turns(worker, 4)
    assert (durable(worker), kinds(worker)) == ({0: 0, 1: 1}, {0: "key_form_changed"})
    assert (place.newest().version, stored(place)) == (3, {SEVEN: "json-schema", EIGHT: "json-schema"})


def test_a_misrouted_record_names_no_first_form() -> None:
    place = KeyedPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.alter(worker, on_misrouted="ignore")
    (stray,) = place.keyed(0, [8], partition=1).records.values()
    place.source.coming = [Polled({}, {}), Polled({place.region(0): stray}, {place.region(0): Position(1)})]
    place.turns(worker, 6)
    assert (place.newest().key_forms, durable(worker)) == ((), {0: 1, 1: 0})
    place.source.coming = [place.keyed(1, [7]), place.keyed(0, [7], partition=1)]
    place.turns(worker, 6)
    assert (durable(worker), kinds(worker)) == ({0: 2, 1: 1}, {})
    assert place.newest().key_forms == ("id-7",)


def test_an_id_of_keys_that_gets_another_schema_stops() -> None:
    place = KeyedPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.keyed(0, [7])]
    place.turns(worker, 4)
    place.registry.has[SEVEN] = WriterSchema("json-schema", '{"type": "array"}')
    place.turns(worker, 6, EVERY_S)
    assert {type(error) for error in worker.stopped.values()} == {SchemaIdReused}
