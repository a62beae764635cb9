"""Two tables compared cell by cell, as sets of rows in which a row may stand several times."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lancewal_demo.expected import NO_EXTENSIONS

_EXAMPLES_MAX = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """``name`` says what was compared; ``missing`` and ``surplus`` are rows found too rarely and too often."""

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
    """Compare all of ``expected``'s columns, by value, null equal to null.  ``found`` may have further columns."""
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
