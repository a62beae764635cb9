"""The source's columns change: what becomes of the events, and which changes of the table lead on.

The samples are those of one table of PostgreSQL through all steps of its DDL.  The oracle is the row in each event.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.rows.column_types import format_type
from lancewal_core.settings.sections import OnUnknownColumn, ValueFormat
from lancewal_core.table.columns.changes import Added, ContractChange, Dropped, Renamed, Widened
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.contract import Contract
from lancewal_ingest.append.new_columns import with_new_fields
from lancewal_ingest.decode.naming import OtherName, naming_of
from lancewal_ingest.decode.value_decoder import DecodedValues
from lancewal_ingest.envelopes.envelope import envelope_of
from lancewal_ingest.formats import value_decoder
from lancewal_tables.define.column_changes import parse_added
from tests.ingest.envelopes.test_postgres_with_schemas import EVENTS, SCHEMAS
from tests.support.debezium import contract_of, samples

JSON = {one.step: one.value or b"" for one in samples("postgres_evolve", "evolve") if one.value is not None}
"""The event of each step, but for tombstones."""
(CONNECT,) = [one.value or b"" for one in samples("postgres_evolve", "evolve_schema")]
AVRO: dict[str, Any] = {event["step"]: event for event in EVENTS if event["table"] == "evolve"}
INSERTS = [step for step in JSON if step != "evolve-17-delete-old"]


class Evolving:
    """A table whose contract follows."""

    def __init__(self, value_format: ValueFormat, on_unknown_column: OnUnknownColumn) -> None:
        columns = {"id": "int32", "a": "int32", "b": "string"}
        self.contract: Contract = contract_of(columns, value_format=value_format, on_unknown_column=on_unknown_column)

    def decoded(self, value: bytes) -> DecodedValues:
        contract = self.contract
        decoder = value_decoder(
            contract.value_format, contract.rows, naming_of(contract), SCHEMAS, envelope=envelope_of(contract)
        )
        return decoder.decode([value], np.zeros(1, np.uint8))

    def row(self, value: bytes) -> dict[str, Any]:
        """The row that a value gives."""
        found = self.decoded(value)
        assert found.refused == []
        (part,) = found.parts
        return {name: column[0].as_py() for name, column in zip(self.names, part.columns, strict=True)}

    def refusal(self, value: bytes) -> tuple[str, str]:
        """Kind and message of a value that is none."""
        found = self.decoded(value)
        assert found.parts == [] or not len(found.parts[0].indexes)
        (refused,) = found.refused
        return refused.kind, f"{refused.message} {refused.found}"

    def alter(self, *changes: ContractChange) -> None:
        """Do as ``lancewal table alter`` does.  A wider type counts once the flusher has written the column."""
        self.contract = changed(self.contract, changes, self._around, "abc")
        wider = [
            one if one.widening is None else one.model_copy(update={"type": one.widening.type, "widening": None})
            for one in self.contract.columns
        ]
        self.contract = self.contract.model_copy(update={"columns": tuple(wider)})

    def add_fields(self, value: bytes) -> list[str]:
        """Do as ingest does with ``on_unknown_column: add``, and return the columns that it adds."""
        new = self.decoded(value).new_fields
        following = with_new_fields(self.contract, new, self._around, "abc")
        assert following.refused == {}
        self.contract = following.contract
        return [f"{name}: {format_type(type_)}" for name, type_ in new.items()]

    @property
    def _around(self) -> Surroundings:
        return Surroundings(1000 * (1 + self.contract.version), {})  # each version has ids of its own

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.contract.rows.columns]


def after(step: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(JSON[step])["after"]
    return row


def test_each_change_in_json_stops_by_name_until_the_table_follows() -> None:
    """Decimals come as bytes in the default mode.  No value tells that their scale has changed."""
    table = Evolving("json", "reject")
    assert table.row(JSON["snapshot"]) == after("snapshot")
    for name, type_, first, rest in (
        ("c", "binary", "evolve-1-add-column-default", ["evolve-2-update-old-row"]),
        ("d", "string", "evolve-4-insert", []),
    ):
        kind, message = table.refusal(JSON[first])
        assert (kind, message.rpartition(" ")[2]) == ("unknown_column", name)
        table.alter(Added((name,), pa.binary() if type_ == "binary" else pa.string()))
        for step in (first, *rest):
            row = after(step)
            assert table.row(JSON[step]) == {**row, "c": base64.b64decode(row["c"])}
    assert table.row(JSON["snapshot"]) == {**after("snapshot"), "c": None, "d": None}
    # A column that the source renames is another one, until the table renames its own.
    assert table.refusal(JSON["evolve-6-insert"])[0] == "unknown_column"
    table.alter(Renamed(("b",), "bb"))
    row = after("evolve-6-insert")
    assert table.row(JSON["evolve-6-insert"]) == {**row, "c": base64.b64decode(row["c"])}
    assert table.row(JSON["snapshot"])["bb"] == "one"
    kind, message = table.refusal(JSON["evolve-8-insert"])
    assert kind == "range"
    assert message.startswith("column 'a'")
    table.alter(Widened(("a",), pa.int64()))
    assert table.row(JSON["evolve-8-insert"])["a"] == 5_000_000_000
    kind, message = table.refusal(JSON["evolve-10-insert"])
    assert kind == "type"
    assert message.startswith("column 'a': expected an integer")
    table.alter(Renamed(("a",), "a_number"))
    assert table.refusal(JSON["evolve-10-insert"])[0] == "type"
    table.alter(parse_added("a: {type: string, json: text}"))
    for step in ("evolve-10-insert", "evolve-12-insert", "evolve-14-insert", "evolve-16-insert"):
        row = after(step)
        expected = {**row, "a_number": None, "c": base64.b64decode(row["c"]), "d": None}
        assert table.row(JSON[step]) == expected
    assert "d" not in after("evolve-14-insert")
    assert table.row(JSON["evolve-8-insert"])["a"] == "5000000000"  # an event that comes again


def test_the_scale_of_a_decimal_changes_unseen_in_json_without_schemas() -> None:
    """4.50 of numeric(8, 2) and 7.1234 of numeric(10, 4)."""
    unscaled = [int.from_bytes(base64.b64decode(after(f"evolve-{n}-insert")["c"]), "big") for n in (6, 12)]
    assert unscaled == [450, 71234]


def expected_in_avro(step: str, **changed: Any) -> dict[str, Any]:
    row = {**AVRO[step]["after"], **changed}
    return {**row, "c": None if row["c"] is None else Decimal(row["c"])}


def values(step: str) -> bytes:
    value: bytes = AVRO[step]["value"]
    return value


def test_add_follows_new_columns_in_avro_and_the_rest_needs_a_command() -> None:
    table = Evolving("avro", "add")
    step = "evolve-1-add-column-default"
    assert table.add_fields(values(step)) == ["c: decimal128(8, 2)"]
    assert table.row(values(step)) == expected_in_avro(step)
    assert table.row(values("evolve-2-update-old-row")) == expected_in_avro("evolve-2-update-old-row")
    # Renaming is a new column and one that is no longer there.
    step = "evolve-6-insert"
    assert table.add_fields(values(step)) == ["bb: string", "d: timestamp[us, UTC]"]
    assert table.row(values(step)) == expected_in_avro(step, b=None)
    step = "evolve-10-insert"
    kind, message = table.refusal(values(step))
    assert kind == "type"
    assert "column 'a': expected a type that fits int32; the schema has string" in message
    table.alter(Renamed(("a",), "a_number"))
    table.alter(Added(("a",), pa.string()))
    assert table.row(values(step)) == expected_in_avro(step, b=None, a_number=None)
    step = "evolve-12-insert"
    kind, message = table.refusal(values(step))
    assert kind == "type"
    assert "column 'c'" in message
    assert "decimal(10, 4)" in message
    table.alter(Widened(("c",), pa.decimal128(10, 4)))
    assert table.row(values(step)) == expected_in_avro(step, b=None, a_number=None)
    step = "evolve-14-insert"
    assert "d" not in AVRO[step]["after"]
    assert table.row(values(step)) == expected_in_avro(step, b=None, a_number=None, d=None)
    # The same default as the source's, since the converter has put it in place of null.
    assert table.row(values("evolve-16-insert"))["c"] == Decimal("1.2500")
    deleted = table.decoded(values("evolve-17-delete-old"))
    assert deleted.deletes.tolist() == [0]


def test_a_rename_that_the_table_follows_keeps_one_column() -> None:
    """Events from before and after it fill the same column, in any order."""
    table = Evolving("avro", "add")
    table.add_fields(values("evolve-1-add-column-default"))
    table.alter(Renamed(("b",), "bb"))
    assert table.add_fields(values("evolve-6-insert")) == ["d: timestamp[us, UTC]"]
    assert table.row(values("evolve-6-insert"))["bb"] == "four"
    assert table.row(values("evolve-2-update-old-row"))["bb"] == "one"


def test_a_column_that_the_table_has_dropped_before_the_source_is_passed_over() -> None:
    table = Evolving("avro", "add")
    table.add_fields(values("evolve-1-add-column-default"))
    table.alter(Dropped(("c",)))
    step = "evolve-2-update-old-row"
    found = table.decoded(values(step))
    assert found.other_names == {OtherName("dropped", "c"): 1}
    row = {name: cell for name, cell in AVRO[step]["after"].items() if name != "c"}
    assert table.row(values(step)) == row


def test_without_add_a_new_column_is_named_where_schemas_have_it() -> None:
    """Such a record stops its partition, and is no dead letter."""
    table = Evolving("avro", "reject")
    found = table.decoded(values("evolve-1-add-column-default"))
    assert [(one.kind, one.found) for one in found.refused] == [("unknown_column", "c")]
    assert {name: format_type(type_) for name, type_ in found.new_fields.items()} == {"c": "decimal128(8, 2)"}


def test_add_follows_a_new_column_in_connect_json() -> None:
    table = Evolving("connect-json", "add")
    assert table.add_fields(CONNECT) == ["c: decimal128(8, 2)"]
    assert table.row(CONNECT) == {"id": 2, "a": 2, "b": "two", "c": Decimal("2.50")}


def test_ignore_passes_a_new_column_over() -> None:
    table = Evolving("json", "ignore")
    row = after("evolve-1-add-column-default")
    assert table.row(JSON["evolve-1-add-column-default"]) == {name: row[name] for name in ("id", "a", "b")}


@pytest.mark.parametrize(("step", "columns"), [("my-ddl-insert", ["c"]), ("my-ddl-insert-2", ["c", "label"])])
def test_columns_that_mariadb_has_added_and_renamed(step: str, columns: list[str]) -> None:
    (record,) = [one for one in samples("mariadb_json", "accounts") if one.step == step]
    table = Evolving("json", "reject")
    table.contract = contract_of({"id": "int32", "name": "string", "amount": "binary", "big": "string"})
    for name in columns:
        assert table.refusal(record.value or b"")[0] == "unknown_column"
        table.alter(Renamed(("name",), name) if name == "label" else Added((name,), pa.int32()))
    row = json.loads(record.value or b"")["after"]
    assert table.row(record.value or b"") == {**row, "amount": base64.b64decode(row["amount"])}


def test_a_time_of_the_source_is_a_time_of_the_table() -> None:
    """The column that ``add`` has made holds the values of later events."""
    assert AVRO["evolve-6-insert"]["after"]["d"] is None
    table = Evolving("json", "reject")
    table.alter(Added(("c",), pa.binary()), Added(("d",), pa.timestamp("us", "UTC")))
    found: datetime = table.row(JSON["evolve-4-insert"])["d"]
    assert found.isoformat() == "2024-01-01T00:00:00+00:00"
