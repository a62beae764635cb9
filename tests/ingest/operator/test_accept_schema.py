"""``lancewal schema accept``: another schema for an id, between records of a running worker on twins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, SchemaKey
from lancewal_core.table.contract import Contract, encode_contract, newest_contract
from lancewal_core.wal.writer_schemas import WriterSchema, WriterSchemas
from lancewal_ingest.append.prepare import Consumed, Preparer, lenient
from lancewal_ingest.kafka.dead_letters import RefusedDeadLetters
from lancewal_ingest.operator.accept_schema import accept_schema
from lancewal_ingest.registry.comparison import EVERY_S
from lancewal_ingest.registry.lookups import NOT_FOUND_S
from lancewal_ingest.service.worker import IngestWorker
from tests.ingest.regions.test_schema_waits import EIGHT, OTHER, SEVEN, FramedPlace, durable
from tests.support.fake_registry import JSON, FakeRegistry


class StoredPlace(FramedPlace):
    """A table whose contract is stored."""

    def __init__(self, registry: FakeRegistry, **terms: str) -> None:
        super().__init__(registry, 2, **terms)
        self.contract = self.contract.model_copy(update={"making": "m1", "format": 2})
        self.context = replace(self.context, contract=self.contract)
        self.store.put_if_absent(paths.contract_version(1, None), encode_contract(self.contract))

    def accepts(self, key: SchemaKey, since: Mapping[int, Position], worker: IngestWorker) -> Contract:
        context = replace(self.context, contract=stored_contract(self), schemas=None)
        contract, _ = accept_schema(context, self.registry, key, {self.region(p): at for p, at in since.items()})
        assert newest_contract(self.store) == contract
        later = contract.model_copy(update={"version": contract.version + 1})
        worker.take_up(Preparer(later, None, self.context.stored_schemas), RefusedDeadLetters())
        return later


def stored_contract(place: FramedPlace) -> Contract:
    found = newest_contract(place.store)
    assert found is not None
    return found


def read_again(place: StoredPlace, contract: Contract, schemas: list[int]) -> list[str]:
    """Kinds of rejection of records from offset 0 on, read again by a version of the contract; empty for a row."""
    records = place.framed(0, schemas).records[place.region()]
    consumed = Consumed(place.region(), Position(0), Position(len(schemas)), records)
    found, _, _ = Preparer(lenient(contract), schemas=WriterSchemas(place.store, contract.making)).prepare(consumed)
    assert found is not None
    bad = {one.offset: one.kind for one in found.rejected}
    return [bad.get(offset, "") for offset in range(len(schemas))]


def test_an_unknown_schema_counts_from_a_position_on() -> None:
    place = StoredPlace(FakeRegistry(id_7=JSON), on_unknown_schema="dead-letter")
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 8])]
    place.turns(worker, 8, NOT_FOUND_S / 2)
    assert durable(worker)[0] == 2
    place.registry.has[EIGHT] = JSON
    later = place.accepts(EIGHT, {0: Position(3)}, worker)
    place.source.coming = [place.framed(2, [8, 8])]
    place.turns(worker, 4)
    assert durable(worker)[0] == 4
    rejected = [one.offset for entry in place.entries() for one in entry.rejected]
    assert rejected == [1, 2]
    assert read_again(place, later, [8, 8, 8, 8]) == ["unknown_schema"] * 3 + [""]
    former = later.model_copy(update={"schema_versions": {}})
    assert read_again(place, former, [8, 8, 8, 8]) == ["unknown_schema"] * 4


def test_partitions_that_an_id_had_stopped_go_on() -> None:
    place = StoredPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 4)
    place.registry.has[SEVEN] = OTHER
    place.turns(worker, 3, EVERY_S)
    assert [error.kind for error in worker.stopped.values()] == ["schema_id_reused"]
    place.accepts(SEVEN, {}, worker)
    place.turns(worker, 3)
    place.source.coming = [place.framed(1, [7])]
    place.turns(worker, 4)
    assert (worker.stopped, durable(worker)[0]) == ({}, 2)
    place.turns(worker, 3, EVERY_S)
    assert worker.stopped == {}


def test_a_command_that_died_is_run_again() -> None:
    place = StoredPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 4)
    place.registry.has[SEVEN] = OTHER
    before = stored_contract(place)
    place.accepts(SEVEN, {1: Position(4)}, worker)
    made = WriterSchemas(place.store, place.contract.making).read(SEVEN)
    contract = replace(place.context, contract=before, schemas=None)
    with pytest.raises(Exception, match="changed the contract at the same time"):
        accept_schema(contract, place.registry, SEVEN, {place.region(1): Position(4)})
    assert WriterSchemas(place.store, place.contract.making).read(SEVEN) == made
    assert [one.since for one in made] == [{}, {"1": 4}]


@pytest.mark.parametrize(
    ("key", "has", "text"),
    [
        (SchemaKey("id-9"), {SchemaKey("id-9"): JSON}, "has not stored it"),
        (SEVEN, {}, "does not know it"),
        (SEVEN, {SEVEN: WriterSchema("json-schema", '{"type":  "object"}')}, "has the stored one"),
    ],
    ids=["not stored", "not known", "the same"],
)
def test_nothing_to_accept(key: SchemaKey, has: dict[SchemaKey, WriterSchema], text: str) -> None:
    place = StoredPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 4)
    place.registry.has = has
    before = newest_contract(place.store)
    with pytest.raises(InvalidInput, match=text):
        place.accepts(key, {}, worker)
    assert newest_contract(place.store) == before
