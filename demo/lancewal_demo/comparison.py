"""Compare two tables cell by cell, as multisets of rows: order does not count, and a row may occur several times."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lancewal_demo.expected import NO_EXTENSIONS

_EXAMPLES_MAX = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of a comparison.

    ``rows`` and ``columns``: size of the expected table.  ``missing`` and ``surplus``: numbers of rows that the other table
    lacks or has in addition.  ``examples``: some of these rows as text."""

    name: str
    rows: int
    columns: int
    missing: int
    surplus: int
    examples: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.missing and not self.surplus

    def __str__(self) -> str:
        if self.holds:
            return f"equal: {self.name}: {self.rows:,} rows, {self.rows * self.columns:,} cells"
        lines = [f"DIFFERENT: {self.name}: of {self.rows:,} rows {self.missing:,} missing, {self.surplus:,} too many"]
        return "\n  ".join([*lines, *self.examples])


def compare(name: str, expected: pa.Table, found: pa.Table) -> Comparison:
    """Compare ``found`` with ``expected`` by the values of all expected columns; null equals null.

    ``name``: what is compared, for the summary.  ``found`` may have further columns."""
    import duckdb

    there = found.select(expected.column_names).cast(expected.schema)
    with duckdb.connect(config=NO_EXTENSIONS) as connection:
        connection.register("expected", expected)
        connection.register("found", there)
        missing = connection.sql("FROM expected EXCEPT ALL FROM found").to_arrow_table()
        surplus = connection.sql("FROM found EXCEPT ALL FROM expected").to_arrow_table()
    examples = [
        f"{kind} {row}"
        for kind, rows in (("missing", missing), ("surplus", surplus))
        for row in rows.slice(0, _EXAMPLES_MAX).to_pylist()
    ]
    return Comparison(
        name, expected.num_rows, expected.num_columns, missing.num_rows, surplus.num_rows, tuple(examples)
    )
