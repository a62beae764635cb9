"""``on_unknown_column: add``: the first ingest that meets an optional field adds a column for it.  The format is a fake, the
store and the table are real."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.process.clock import SystemClock
from lancewal_core.rows.column_types import parse_type
from lancewal_core.table.columns.changes import Added, Change, Dropped, Renamed
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.columns.steps import change_columns, take_steps
from lancewal_core.table.contract import Contract, read_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import ColumnsCommit, CommitLost, CommitOutcome
from lancewal_ingest.append import new_columns
from lancewal_ingest.append.new_columns import with_new_fields
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_reader.table import open_table
from tests.support.format_with_schemas import values_have_schemas
from tests.support.pipeline import SMALL, Pipeline, by_key
from tests.support.silent_observer import SilentObserver

UNSUPPORTED = {"interval": pa.month_day_nano_interval(), "zoned": pa.timestamp("us", "Europe/Berlin")}


def read(value: bytes) -> tuple[bytes, Mapping[str, pa.DataType]]:
    """A value of ``send``.  A field whose type ends with ``!`` is not optional."""
    found = json.loads(value)
    types = {n: t for n, t in found["schema"].items() if not t.endswith("!")}
    known = {n: UNSUPPORTED[t] if t in UNSUPPORTED else parse_type(t) for n, t in types.items()}
    return json.dumps(found["row"]).encode(), known


class Seen(SilentObserver):
    def __init__(self) -> None:
        self.added: list[tuple[str, str, int]] = []
        self.refused: dict[str, str] = {}
        self.failures: list[object] = []

    def column_added(self, name: str, type_: pa.DataType, contract_version: int) -> None:
        self.added.append((name, str(type_), contract_version))

    def column_refused(self, name: str, why: str) -> None:
        assert name not in self.refused
        self.refused[name] = why

    def failed(self, act: str, cause: object) -> None:
        self.failures.append(cause)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def pipeline(tmp_path: Path, seen: Seen) -> Iterator[Pipeline]:
    with values_have_schemas(read):
        made = Pipeline(
            tmp_path,
            SMALL,
            partitions=2,
            seal_rows=10**6,
            observer=seen,
            format=2,
            on_unknown_column="add",
            columns_max=6,
            on_bad_record="ignore",
        )
        yield made
        made.close()


def send(pipeline: Pipeline, id: int, row: dict[str, Any], **schema: str) -> None:
    """A record with its schema."""
    pipeline.produced("upsert", "r0", id, {"schema": schema, "row": {"region": "r0", "id": id, **row}})


def rows(pipeline: Pipeline) -> dict[int, dict[str, Any]]:
    return {id: row for (_, id), row in by_key(open_table(pipeline.uri).to_arrow()).items()}


def contract_of(pipeline: Pipeline) -> Contract:
    return read_contract(pipeline.store, pipeline.uri)


def names(pipeline: Pipeline) -> list[str]:
    """The columns that were added, in the contract and in the table alike."""
    contract = contract_of(pipeline)
    assert LanceTable(pipeline.uri).newest().schema.names == contract.rows.columns.names
    return [column.name for column in contract.columns][4:]


def alter(pipeline: Pipeline, *changes: Change) -> None:
    """What ``lancewal table alter`` does."""
    change_columns(pipeline.store, pipeline.table, pipeline.clock, lambda: "abc", changes)


def test_the_first_that_meets_a_field_adds_it(pipeline: Pipeline, seen: Seen) -> None:
    send(pipeline, 1, {"a": 1})
    pipeline.ingest()
    send(pipeline, 2, {"a": 2, "note": "new", "at": "2020-01-01"}, note="string", at="date32")
    send(pipeline, 3, {"note": "later"}, note="string")
    pipeline.ingest()
    send(pipeline, 4, {"at": None}, at="date32")
    pipeline.ingest()
    assert names(pipeline) == ["at", "note"]
    assert seen.added == [("at", "date32[day]", 2), ("note", "string", 2)]
    assert pipeline._worker.terms.contract == contract_of(pipeline)
    found = rows(pipeline)
    assert [found[id]["note"] for id in (1, 2, 3, 4)] == [None, "new", "later", None]
    pipeline.hand_over()
    pipeline.contract = contract_of(pipeline)
    pipeline.merge_all()
    assert rows(pipeline) == found
    assert (seen.refused, seen.failures) == ({}, [])


def test_a_field_of_a_struct_is_added_whole(pipeline: Pipeline) -> None:
    send(pipeline, 1, {"p": {"x": 1, "l": ["a"]}}, p="struct<x: int32, l: list<string>>")
    pipeline.ingest()
    assert (rows(pipeline)[1]["p"], names(pipeline)) == ({"x": 1, "l": ["a"]}, ["p"])


Act = Callable[[ColumnsCommit], CommitOutcome | None]
"""What is done before a commit of columns, and its answer if the commit is not made after it."""


def nothing(_: ColumnsCommit) -> None:
    pass


class Table(LanceTable):
    """Acts before commits of columns, each once."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.before: list[Act] = []

    def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
        told = self.before.pop(0)(commit) if self.before else None
        return super().change_columns(commit) if told is None else told


@pytest.fixture
def table(pipeline: Pipeline) -> Table:
    pipeline.table = table = Table(pipeline.uri)
    pipeline.replace_worker()
    return table


def test_another_member_is_faster(pipeline: Pipeline, table: Table, seen: Seen) -> None:
    """Its version is taken up; the fields that it lacks are added after it."""

    def faster(_: ColumnsCommit) -> None:
        alter(pipeline, Added(("note",), pa.string()))

    table.before = [faster]
    send(pipeline, 1, {"note": "x", "more": 5}, note="string", more="int64")
    pipeline.ingest()
    assert (names(pipeline), contract_of(pipeline).version) == (["note", "more"], 3)
    assert (seen.added, seen.refused) == ([("more", "int64", 3)], {})
    assert rows(pipeline)[1] == {"region": "r0", "id": 1, "a": None, "s": None, "note": "x", "more": 5}


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", range(2))
def test_a_process_dies_between_the_steps(pipeline: Pipeline, table: Table, step: int) -> None:
    """Before its growth, or before it shrinks; another goes on."""

    def dies(_: ColumnsCommit) -> None:
        raise Killed

    table.before = [*[nothing] * step, dies]
    send(pipeline, 1, {"note": "x"}, note="string")
    with pytest.raises(Killed):
        pipeline.ingest()
    pipeline.crash()
    assert ([column.name for column in contract_of(pipeline).columns[4:]], rows(pipeline)[1]["note"]) == (["note"], "x")
    send(pipeline, 2, {"more": 1}, more="int8")
    pipeline.ingest()
    assert (names(pipeline), contract_of(pipeline).version) == (["note", "more"], 3)


def test_the_reply_to_a_step_is_lost(pipeline: Pipeline, table: Table, seen: Seen) -> None:
    """The records wait.  A column is told of once, whichever reply was lost."""

    def lost(commit: ColumnsCommit) -> CommitOutcome:
        LanceTable(pipeline.uri).change_columns(commit)
        return CommitLost("the reply was lost")

    for number, step in enumerate((0, 1)):
        table.before = [*[nothing] * step, lost]
        send(pipeline, number, {f"n{number}": "x"}, **{f"n{number}": "string"})
        pipeline.ingest()
        assert not table.before
    assert (names(pipeline), contract_of(pipeline).version) == (["n0", "n1"], 3)
    assert [(name, version) for name, _, version in seen.added] == [("n0", 2), ("n1", 3)]
    assert len(seen.failures) == 2
    assert [rows(pipeline)[number][f"n{number}"] for number in (0, 1)] == ["x", "x"]


def test_records_wait_while_the_store_does_not_answer(pipeline: Pipeline, table: Table, seen: Seen) -> None:
    def silent(_: ColumnsCommit) -> None:
        raise StoreUnavailable("no answer")

    table.before = [silent, silent]
    send(pipeline, 1, {"note": "x"}, note="string")
    pipeline.ingest()
    assert [str(error) for error in seen.failures] == ["no answer"] * 2
    assert rows(pipeline)[1]["note"] == "x"


@pytest.mark.parametrize(
    ("name", "type_", "why"),
    [
        ("A", "int64", "taken, by 'a'"),
        ("_offset", "int64", "reserved"),
        ("b.c", "int64", "not allowed"),
        ("d", "interval", "type month_day_nano_interval"),
        ("t", "zoned", "expected the zone UTC"),
        ("needed", "int64!", None),
    ],
)
def test_a_field_that_cannot_be_a_column_makes_a_bad_record(
    pipeline: Pipeline, seen: Seen, name: str, type_: str, why: str | None
) -> None:
    """Other fields of the segment are added all the same."""
    send(pipeline, 1, {name: 1}, **{name: type_})
    send(pipeline, 2, {"ok": 1}, ok="int8")
    pipeline.ingest()
    assert (sorted(rows(pipeline)), names(pipeline)) == ([2], ["ok"])
    assert list(seen.refused) == ([] if why is None else [name])
    assert why is None or why in seen.refused[name]


def test_the_first_names_get_the_room_that_there_is(pipeline: Pipeline, seen: Seen) -> None:
    send(pipeline, 1, {"c": 1, "b": 2, "A": 3, "d": 4}, A="int64", c="int64", b="int64", d="int64")
    send(pipeline, 2, {"b": 2, "c": 1}, b="int64", c="int64")
    pipeline.ingest()
    assert (sorted(rows(pipeline)), names(pipeline)) == ([2], ["b", "c"])
    assert "columns_max allows (6)" in seen.refused["d"]
    version = LanceTable(pipeline.uri).newest().version
    send(pipeline, 3, {"e": 1}, e="int64")
    pipeline.ingest()
    assert (sorted(rows(pipeline)), LanceTable(pipeline.uri).newest().version) == ([2], version)


def test_former_and_dropped_names_are_not_added(pipeline: Pipeline, seen: Seen) -> None:
    """A record has them beside a new field, for which it is decoded again."""
    alter(pipeline, Renamed(("a",), "b"), Dropped(("s",)))
    send(pipeline, 1, {"a": 1, "s": "gone", "note": "x"}, a="int64", s="string", note="string")
    pipeline.ingest()
    assert contract_of(pipeline).rows.columns.names == ["region", "id", "b", "note"]
    assert rows(pipeline)[1] == {"region": "r0", "id": 1, "b": 1, "note": "x"}
    assert (set(seen.refused), [name for name, *_ in seen.added]) == ({"a", "s"}, ["note"])


def test_a_name_that_another_program_has_taken_is_tried_rarely(
    pipeline: Pipeline, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are bad records.  Once the other column is gone, it is added."""
    dataset = LanceTable(pipeline.uri).newest().dataset
    dataset.add_columns(pa.schema([("theirs", pa.int8())]))
    version = LanceTable(pipeline.uri).newest().version
    tries = 0

    def counted(*of: Any) -> Contract:
        nonlocal tries
        tries += 1
        return take_steps(*of)

    monkeypatch.setattr(new_columns, "take_steps", counted)
    for id in range(3):
        send(pipeline, id, {"theirs": "x"}, theirs="string")
        pipeline.ingest()
        assert tries == 1
    assert (rows(pipeline), list(seen.refused)) == ({}, ["theirs"])
    assert "which is not the contract's" in seen.refused["theirs"]
    assert LanceTable(pipeline.uri).newest().version == version
    LanceTable(pipeline.uri).newest().dataset.drop_columns(["theirs"])
    pipeline.clock.ahead_s += new_columns.AGAIN_S
    send(pipeline, 9, {"theirs": "x"}, theirs="string")
    pipeline.ingest()
    assert (names(pipeline), rows(pipeline)[9]["theirs"]) == (["theirs"], "x")


def test_records_do_not_wait_while_other_programs_have_changed_columns(pipeline: Pipeline, seen: Seen) -> None:
    """No column is added to a table that does not fit its contract.  Ingest goes on."""
    LanceTable(pipeline.uri).newest().dataset.drop_columns(["s"])
    send(pipeline, 1, {"note": "x"}, note="string")
    send(pipeline, 2, {"a": 1})
    pipeline.ingest()
    assert contract_of(pipeline).version == 1
    assert "'s'" in seen.refused["note"]
    assert seen.failures == []


@pytest.mark.parametrize("policy", ["reject", "ignore"])
def test_nothing_is_added_unless_the_contract_says_so(tmp_path: Path, policy: str) -> None:
    with values_have_schemas(read):
        pipeline = Pipeline(tmp_path, SMALL, format=2, on_unknown_column=policy, on_bad_record="ignore")
        send(pipeline, 1, {"note": "x"}, note="string")
        pipeline.ingest()
        assert contract_of(pipeline).version == 1
        pipeline.close()


def test_many_fields_cost_few_trials(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused one among many is found by halves."""
    contract, calls = pipeline.contract.model_copy(update={"columns_max": 4_000}), 0

    def counted(*of: Any) -> Contract:
        nonlocal calls
        calls += 1
        return changed(*of)

    monkeypatch.setattr(new_columns, "changed", counted)
    fields = {f"n{n:04}": pa.int8() for n in range(1_000)} | {"n0500!": pa.month_day_nano_interval()}
    found = with_new_fields(contract, fields, Surroundings(9, {}), "abc")
    assert list(found.refused) == ["n0500!"]
    assert [column.name for column in found.contract.columns[4:]] == sorted(fields.keys() - found.refused.keys())
    assert calls < 25
    calls = 0
    fields = {f"n{n:04}": pa.month_day_nano_interval() for n in range(1_000)}
    found = with_new_fields(contract, fields, Surroundings(9, {}), "abc")
    assert (found.contract, found.refused.keys()) == (contract, fields.keys())
    assert calls <= new_columns.TRIALS_MAX + 1


def test_the_event_and_the_metric_name_the_column(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = IngestMetrics(SystemClock(), "orders", 1, IngestEvents(table="orders"))
    metrics.column_added("note", pa.float64(), 2)
    metrics.column_refused("x" * 10_000, "y" * 10_000)
    (family,) = [one for one in metrics.registry.collect() if one.name == "lancewal_ingest_columns_added"]
    assert [one.labels["field"] for one in family.samples if one.value == 1] == ["note"]
    added, refused = capsys.readouterr().out.splitlines()
    assert "column_added" in added
    assert "column=note" in added
    assert "type=float64" in added
    assert "column_refused" in refused
    assert len(refused) < 2_000
