"""``lancewal schema accept``: another schema for an id, between records of a running worker on twins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from unittest.mock import patch

import pytest

from lancewal_core.errors import InvalidInput, TooManySchemas
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, SchemaKey
from lancewal_core.table.contract import Contract, encode_contract, newest_contract
from lancewal_core.wal.writer_schemas import SCHEMA_BYTES_MAX, WriterSchema, WriterSchemas
from lancewal_ingest.append.prepare import Consumed, Preparer, lenient
from lancewal_ingest.commands.operator import accept_schema as command
from lancewal_ingest.commands.operator.accept_schema import accept_schema
from lancewal_ingest.kafka.dead_letters import RefusedDeadLetters
from lancewal_ingest.registry.comparison import EVERY_S
from lancewal_ingest.registry.lookups import AGAIN_S, NOT_FOUND_S
from lancewal_ingest.service.worker import IngestWorker
from tests.ingest.regions.test_schema_waits import EIGHT, OTHER, SEVEN, FramedPlace, durable
from tests.support.fake_registry import JSON, FakeRegistry

AVRO = WriterSchema("avro", '"long"')


class StoredPlace(FramedPlace):
    """A table whose contract is stored."""

    def __init__(self, registry: FakeRegistry, **terms: str) -> None:
        super().__init__(registry, 2, **terms)
        self.contract = self.contract.model_copy(update={"making": "m1", "format": 2})
        self.context = replace(self.context, contract=self.contract)
        self.store.put_if_absent(paths.contract_version(1, None), encode_contract(self.contract))

    def accepts(self, key: SchemaKey, since: Mapping[int, Position], worker: IngestWorker) -> Contract:
        context = replace(self.context, contract=stored_contract(self), schemas=None)
        positions = {self.region(p): at for p, at in since.items()}
        seen = stored(self)
        would = accept_schema(context, self.registry, key, positions, look_only=True)
        assert stored(self) == seen
        did = accept_schema(context, self.registry, key, positions)
        assert did == would
        contract = did.contract
        assert newest_contract(self.store) == contract
        later = contract.model_copy(update={"version": contract.version + 1})
        worker.take_up(Preparer(later, None, self.context.stored_schemas), RefusedDeadLetters())
        return later


def place_with_a_record() -> tuple[StoredPlace, IngestWorker]:
    """A place whose worker has made one record of schema 7 durable."""
    place = StoredPlace(FakeRegistry(id_7=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7])]
    place.turns(worker, 4)
    return place, worker


def stored(place: StoredPlace) -> dict[str, bytes | None]:
    return {one.key: place.store.get(one.key) for one in place.store.list("")}


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
    place, worker = place_with_a_record()
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


def test_a_comparison_of_the_version_before_says_nothing() -> None:
    place, worker = place_with_a_record()
    place.turns(worker, 2, EVERY_S)
    place.registry.has[SEVEN] = OTHER
    place.turns(worker, 1, EVERY_S)  # the comparison has ended, and nobody has looked at it
    stored_before = len(place.registry.asked)
    place.accepts(SEVEN, {}, worker)
    place.source.coming = [place.framed(1, [7])]
    place.turns(worker, 4)
    assert len(place.registry.asked) == stored_before + 2, "the command and its dry run asked, and nobody else"
    assert (worker.stopped, durable(worker)[0]) == ({}, 2)


def test_a_command_that_died_is_run_again() -> None:
    place, worker = place_with_a_record()
    place.registry.has[SEVEN] = OTHER
    before = stored_contract(place)
    place.accepts(SEVEN, {1: Position(4)}, worker)
    made = WriterSchemas(place.store, place.contract.making).read(SEVEN)
    contract = replace(place.context, contract=before, schemas=None)
    with pytest.raises(Exception, match="changed the contract at the same time"):
        accept_schema(contract, place.registry, SEVEN, {place.region(1): Position(4)})
    assert WriterSchemas(place.store, place.contract.making).read(SEVEN) == made
    assert [one.since for one in made] == [{}, {"1": 4}]


def dies_before_the_contract(place: StoredPlace, since: Mapping[int, Position]) -> None:
    """Put the next version of schema 7, which no contract names."""
    before = stored_contract(place)
    context = replace(place.context, contract=before, schemas=None)
    positions = {place.region(p): at for p, at in since.items()}
    with patch.object(command, "put_next", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        accept_schema(context, place.registry, SEVEN, positions)
    assert stored_contract(place) == before


def test_a_version_that_no_contract_names_lets_no_record_pass() -> None:
    place, worker = place_with_a_record()
    place.registry.has[SEVEN] = OTHER
    place.turns(worker, 3, EVERY_S)
    dies_before_the_contract(place, {})
    place.turns(worker, 4, AGAIN_S)
    assert [error.kind for error in worker.stopped.values()] == ["schema_id_reused"]
    again = place.worker_here()
    place.source.coming = [place.framed(1, [7])]
    place.turns(again, 4, 2.0)
    assert [error.kind for error in again.stopped.values()] == ["schema_id_reused"]


def test_a_command_that_died_with_other_positions_decides_nothing() -> None:
    place, worker = place_with_a_record()
    place.registry.has[SEVEN] = AVRO
    dies_before_the_contract(place, {0: Position(1)})
    later = place.accepts(SEVEN, {0: Position(3)}, worker)
    assert read_again(place, later, [7] * 5) == [""] * 3 + ["unusable_schema"] * 2
    assert read_again(place, later.model_copy(update={"schema_versions": {}}), [7] * 5) == [""] * 5


def test_versions_of_a_schema_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SCHEMA_VERSIONS_MAX", 6)
    place, worker = place_with_a_record()
    place.registry.has[SEVEN] = AVRO
    for at in (1, 2):
        dies_before_the_contract(place, {0: Position(at)})
    assert [one.since for one in WriterSchemas(place.store, place.contract.making).read(SEVEN)] == [
        {},
        {"0": 1},
        {},
        {"0": 2},
    ]
    later = place.accepts(SEVEN, {}, worker)
    assert later.schema_versions == {SEVEN: 6}
    assert read_again(place, later, [7] * 3) == ["unusable_schema"] * 3
    place.registry.has[SEVEN] = JSON
    with pytest.raises(InvalidInput, match=r"at most 6 versions"):
        place.accepts(SEVEN, {}, worker)
    assert len(WriterSchemas(place.store, place.contract.making).read(SEVEN)) == 6


def test_accepted_schemas_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SCHEMAS_ACCEPTED_MAX", 1)
    place = StoredPlace(FakeRegistry(id_7=JSON, id_8=JSON))
    worker = place.worker_here()
    place.source.coming = [place.framed(0, [7, 8])]
    place.turns(worker, 4)
    place.registry.has = {SEVEN: OTHER, EIGHT: OTHER}
    place.accepts(SEVEN, {}, worker)
    with pytest.raises(InvalidInput, match="others for 1 ids"):
        place.accepts(EIGHT, {}, worker)
    place.registry.has[SEVEN] = JSON
    assert place.accepts(SEVEN, {}, worker).schema_versions == {SEVEN: 3}


def test_records_wait_in_memory_while_another_schema_is_accepted() -> None:
    place, worker = place_with_a_record()
    place.registry.has[SEVEN] = OTHER
    place.store.silent = "_lancewal/wal/"
    place.source.coming = [place.framed(1, [7]), place.framed(2, [7])]
    place.turns(worker, 2)
    place.accepts(SEVEN, {}, worker)
    place.store.silent = None
    place.turns(worker, 8, 1.0)
    assert (worker.stopped, durable(worker)[0]) == ({}, 3)


def test_a_doubt_outlasts_a_contract_that_says_nothing_about_it() -> None:
    place, worker = place_with_a_record()
    place.registry.has[SEVEN] = OTHER
    place.turns(worker, 3, EVERY_S)
    later = place.accepts(SEVEN, {}, worker)
    place.turns(worker, 3)
    place.source.coming = [place.framed(1, [7])]
    place.turns(worker, 4)
    place.turns(worker, 3, EVERY_S)
    assert (worker.stopped, durable(worker)[0]) == ({}, 2)
    place.registry.has[SEVEN] = AVRO
    place.turns(worker, 3, EVERY_S)
    assert [error.kind for error in worker.stopped.values()] == ["schema_id_reused"]
    other = later.model_copy(update={"version": later.version + 1, "on_misrouted": "ignore"})
    worker.take_up(Preparer(other, None, place.context.stored_schemas), RefusedDeadLetters())
    place.turns(worker, 2)
    place.source.coming = [place.framed(2, [7])]
    place.turns(worker, 4)
    assert ([error.kind for error in worker.stopped.values()], durable(worker)[0]) == (["schema_id_reused"], 2)


def test_a_schema_that_is_too_large_is_not_accepted() -> None:
    place, worker = place_with_a_record()
    place.registry.has[SEVEN] = WriterSchema("json-schema", "x" * (SCHEMA_BYTES_MAX + 1))
    with pytest.raises(TooManySchemas, match="smaller schema"):
        place.accepts(SEVEN, {}, worker)
    assert len(WriterSchemas(place.store, place.contract.making).read(SEVEN)) == 1


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
    place, worker = place_with_a_record()
    place.registry.has = has
    before = newest_contract(place.store)
    with pytest.raises(InvalidInput, match=text):
        place.accepts(key, {}, worker)
    assert newest_contract(place.store) == before
