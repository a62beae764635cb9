"""``on_unknown_column: add``: the first ingest that meets an optional field of known type adds it, by a fake format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Contract, newest_contract, read_contract
from lancewal_ingest.append import prepare
from lancewal_ingest.append.newer_contract import NewFields, fields_to_add
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.value_decoder import DecodedValues, Ops
from lancewal_reader.table import open_table
from tests.support.columns_by_hand import change_table, next_columns
from tests.support.pipeline import SMALL, Pipeline, by_key


class WithSchemas:
    """A format whose values are JSON with their schema beside them: ``{"schema": {name: type}, "row": {...}}``.

    A type that ends with ``!`` is required."""

    def __init__(self, rows: RowSchema, naming: Naming) -> None:
        self._json = JsonDecoder(rows, naming)
        self._columns = set(rows.columns.names)
        self.growth = self._json.growth

    def decode(self, values: Sequence[bytes], ops: Ops) -> DecodedValues:
        read = [json.loads(value) for value in values]
        found = self._json.decode([json.dumps(one.get("row", one)).encode() for one in read], ops)
        refused = {one.place for one in found.refused}
        new_fields = {
            name: type_
            for place, one in enumerate(read)
            for name, type_ in one.get("schema", {}).items()
            if place in refused and name not in self._columns and not type_.endswith("!")
        }
        return DecodedValues(found.parts, found.refused, found.other_names, new_fields)


class Added:
    """Adds columns as the protocol says; ``before`` runs right before it does."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.asked: list[NewFields] = []
        self.before: list[Any] = []

    def __call__(self, contract: Contract, fields: NewFields) -> None:
        self.asked.append(fields)
        if self.before:
            self.before.pop()()
        if newest_contract(self.pipeline.store) != contract:
            return
        change_table(self.pipeline.store, self.pipeline.table, next_columns(contract, {}, fields))


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    monkeypatch.setattr(prepare, "value_decoder", lambda _, rows, naming: WithSchemas(rows, naming))
    made = Pipeline(
        tmp_path,
        SMALL,
        partitions=2,
        seal_rows=10**6,
        format=2,
        on_unknown_column="add",
        columns_max=6,
        on_bad_record="ignore",
    )  # fmt: skip
    yield made
    made.close()


def adding(pipeline: Pipeline) -> Added:
    pipeline._worker.add_columns = added = Added(pipeline)
    return added


def send(pipeline: Pipeline, id: int, row: dict[str, Any], **schema: str) -> None:
    """A record with its schema."""
    pipeline.produced("upsert", "r0", id, {"schema": schema, "row": {"region": "r0", "id": id, **row}})


def rows(pipeline: Pipeline) -> dict[int, dict[str, Any]]:
    return {id: row for (_, id), row in by_key(open_table(pipeline.uri).to_arrow()).items()}


def test_the_first_that_meets_a_field_adds_it(pipeline: Pipeline) -> None:
    added = adding(pipeline)
    send(pipeline, 1, {"a": 1})
    pipeline.ingest()
    send(pipeline, 2, {"a": 2, "note": "new", "at": "2020-01-01"}, note="string", at="date32")
    send(pipeline, 3, {"note": "later"}, note="string")
    pipeline.ingest()
    send(pipeline, 4, {"at": None}, at="date32")
    pipeline.ingest()
    assert added.asked == [{"at": "date32", "note": "string"}]
    contract = read_contract(pipeline.store, pipeline.uri)
    assert [column.name for column in contract.columns] == ["region", "id", "a", "s", "at", "note"]
    assert pipeline._worker.terms.contract == contract
    found = rows(pipeline)
    assert [found[id]["note"] for id in (1, 2, 3, 4)] == [None, "new", "later", None]
    pipeline.hand_over()
    pipeline.contract = contract
    pipeline.merge_all()
    assert rows(pipeline) == found


def test_another_member_is_faster(pipeline: Pipeline) -> None:
    """Its version is taken up; what it lacks is added after it."""
    added = adding(pipeline)

    def faster() -> None:
        change_table(pipeline.store, pipeline.table, next_columns(pipeline.contract, {}, {"note": "string"}))

    added.before = [faster]
    send(pipeline, 1, {"note": "x", "more": 5}, note="string", more="int64")
    pipeline.ingest()
    assert added.asked == [{"more": "int64", "note": "string"}, {"more": "int64"}]
    assert rows(pipeline)[1] == {"region": "r0", "id": 1, "a": None, "s": None, "note": "x", "more": 5}


def test_a_field_that_is_required_or_beyond_the_most_columns_makes_a_bad_record(pipeline: Pipeline) -> None:
    added = adding(pipeline)
    send(pipeline, 1, {"needed": 1}, needed="int64!")
    pipeline.ingest()
    assert (added.asked, rows(pipeline)) == ([], {})
    send(pipeline, 2, {"c": 1, "b": 2, "d": 3}, c="int64", b="int64", d="int64")
    send(pipeline, 3, {"b": 2, "c": 1}, b="int64", c="int64")
    pipeline.ingest()
    assert sorted(rows(pipeline)) == [3]
    assert [column.name for column in read_contract(pipeline.store, pipeline.uri).columns][4:] == ["b", "c"]


def test_records_wait_while_columns_cannot_be_added(pipeline: Pipeline) -> None:
    added = adding(pipeline)

    def fails() -> None:
        raise StoreUnavailable("no answer")

    added.before = [fails, fails]
    send(pipeline, 1, {"note": "x"}, note="string")
    pipeline.ingest()
    assert len(added.asked) == 3
    assert rows(pipeline)[1]["note"] == "x"


@pytest.mark.parametrize("policy", ["reject", "ignore"])
def test_nothing_is_added_unless_the_contract_says_so(pipeline: Pipeline, policy: str) -> None:
    contract = pipeline.contract.model_copy(update={"on_unknown_column": policy})
    assert fields_to_add(contract, {"note": "string"}) == {}
    assert fields_to_add(pipeline.contract, {"note": "string", "b": "int8", "c": "int8"}) == {"b": "int8", "c": "int8"}
