"""``rows_as``: rows of equal columns pass as they are, others are refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.errors import ContractMismatch, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock
from lancewal_core.rows.projection import rows_as
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import WrittenContracts, encode_contract
from tests.support.flusher_tables import FlusherTable, upserts
from tests.twins.memory_store import MemoryStore


def schema(*columns: tuple[str, str], primary_key: tuple[str, ...] = ("id",)) -> RowSchema:
    fields = [pa.field(name, pa.type_for_alias(type_)) for name, type_ in columns]
    return RowSchema(pa.schema(fields), primary_key, ())


WANTED = schema(("id", "int64"), ("a", "int64"))


def test_rows_of_equal_columns_are_the_same_object() -> None:
    rows = object()
    for written in (WANTED, schema(("id", "int64"), ("a", "int64"))):
        assert rows_as(rows, written, WANTED, lambda: "x") is rows


@pytest.mark.parametrize(
    ("written", "named"),
    [
        (schema(("id", "int64"), ("a", "int32")), "'a' was written as int32, the table's contract has int64"),
        (schema(("id", "int64")), "'a' was written as absent"),
        (schema(("id", "int64"), ("a", "int64"), ("b", "string")), "'b' was written as string, .* has absent"),
        (schema(("a", "int64"), ("id", "int64")), r"\['a', 'id'\] .* were written"),
        (schema(("id", "int64"), ("a", "int64"), primary_key=("id", "a")), "keys"),
    ],
)
def test_other_rows_are_refused_by_name(written: RowSchema, named: str) -> None:
    with pytest.raises(ContractMismatch, match=f"the entry of partition p-0 at offset 7 .*{named}"):
        rows_as(object(), written, WANTED, lambda: "the entry of partition p-0 at offset 7")


def test_an_older_contract_is_read_once_and_the_newest_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = FlusherTable(tmp_path, 1)
    store, asked = MemoryStore(SystemClock()), list[str]()
    newest = made.contract.model_copy(update={"version": 2})
    store.put_if_absent(paths.contract_version(1, newest.making), encode_contract(made.contract))
    real = store.get

    def get(key: str) -> bytes | None:
        asked.append(key)
        return real(key)

    monkeypatch.setattr(store, "get", get)
    contracts = WrittenContracts(store)
    for version in (2, 1, 1, 2):
        assert contracts.rows(newest, version) == newest.rows
    assert asked == [paths.contract_version(1, newest.making)]
    with pytest.raises(ObjectCorrupt, match="WAL entries name it"):
        contracts.rows(newest, 3)
    made.close()


def test_an_altered_policy_empties_no_cache(tmp_path: Path) -> None:
    """Entries of both versions lie in one generation, and are read by what was remembered."""
    made = FlusherTable(tmp_path, 1)
    made.generation(0, upserts(range(3)))
    context: Any = made.context()
    other = made.contract.model_copy(update={"version": made.contract.version + 1})
    assert other.rows.signature == made.contract.rows.signature
    entry = replace(_first_entry(made), contract_version=made.contract.version)
    later = replace(context, contract=other)
    assert later.rows_of(entry).equals(entry.rows)
    made.close()


def _first_entry(made: FlusherTable) -> Any:
    from lancewal_core.region.generation_entries import entries_of

    context = made.context()
    return entries_of(context, made.regions[0], made.record(0, 1))[0]
