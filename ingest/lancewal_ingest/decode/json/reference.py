"""The slow path of the JSON decoder, which defines the right result.  It decodes value by value, by the rules of
``cells``.

1. Each value becomes one row, or is refused by the first check that fails.
2. An upsert sets every column: an absent member is null, or the column's default.  A patch sets only the columns that
   it names; ``_present`` has them.
3. The value of a delete is checked like the value of an upsert, so a producer may send the full row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import Op, RowSchema
from lancewal_ingest.decode.json.cells import CellReader, array_of, cell_reader, named
from lancewal_ingest.decode.json.other_names import other_names
from lancewal_ingest.decode.json.strict import parse_object
from lancewal_ingest.decode.naming import PLAIN, Advice, Naming, OtherName
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.part import DecodedPart, present_bitmap
from lancewal_ingest.decode.value_decoder import Ops, RefusedValue


class ReferenceDecoder:
    """Decoder of single values.  Tests compare the columnar path with this decoder.

    ``naming``: the names and forms that are allowed.  ``defaults``: the cells of columns that an upsert leaves out.
    """

    def __init__(
        self, rows: RowSchema, naming: Naming = PLAIN, defaults: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        """``rows`` and ``defaults``: the columns, and the default cells of some of them, by present names
        (``naming``).
        """
        names = naming.names
        self._rows = rows
        self._names = names
        self._defaults = defaults
        self._columns = {present: column for column, present in naming.fields.items()}
        self._readers: dict[str, CellReader] = {
            field.name: cell_reader(field.type, naming.within(field.name), naming.forms.get(field.name))
            for field in naming.in_values(rows).columns
        }
        self._readers |= {name: _or_text(text, self._readers[name]) for name, text in naming.stand_ins.items()}
        if naming.advice is not None:
            types = {field.name: field.type for field in rows.columns}
            advised = {name: _advised(read, types[name], naming.advice) for name, read in self._readers.items()}
            self._readers = advised

    def decode(
        self, values: Sequence[bytes], ops: Ops, indexes: Iterable[int], others: Counter[OtherName] | None = None
    ) -> tuple[DecodedPart, list[RefusedValue]]:
        """Return the rows of the values at ``indexes`` (ascending), and the values among them that gave no row.

        ``others`` counts the former, dropped and unknown names that the rows use.
        """
        good: list[int] = []
        rows: list[dict[str, object]] = []
        present: list[bytes | None] = []
        refused: list[RefusedValue] = []
        for index in indexes:
            try:
                given = parse_object(values[index], twice=self._names is not None)
                members = named(given, self._names, self._readers, "")
                row = self._cells(members)
            except Refusal as refusal:
                refused.append(RefusedValue.of(index, refusal))
                continue
            if ops[index] == Op.UPSERT:
                row |= {name: cell for name, cell in self._defaults.items() if name not in members}
            rows.append(row)
            good.append(index)
            present.append(present_bitmap(self._rows, members) if ops[index] == Op.PATCH else None)
            if others is not None and self._names is not None:
                others.update(other_names(self._names, given))
        chosen = np.array(good, dtype=np.int64)
        part = DecodedPart(
            indexes=chosen,
            columns=[array_of([row.get(f.name) for row in rows], f.type) for f in self._rows.columns],
            ops=pa.array(ops[chosen]),
            present=pa.array(present, type=pa.binary()),
        )
        return part, refused

    def _cells(self, members: Mapping[str, object]) -> dict[str, object]:
        for name in self._rows.primary_key:
            if members.get(name) is None:
                raise Refusal(
                    "missing_key",
                    f"column {self._column(name)!r}: expected a value, because it is in the primary key",
                )
        return {name: read(members.get(name), self._column(name)) for name, read in self._readers.items()}

    def _column(self, present: str) -> str:
        """Return the table's name of a column, for messages."""
        return self._columns.get(present, present)


def _or_text(text: str, read: CellReader) -> CellReader:
    """Return a reader that takes the string ``text`` as it is, and leaves other values to ``read``."""
    return lambda value, path: value if type(value) is str and value == text else read(value, path)


def _advised(read: CellReader, column: pa.DataType, advice: Advice) -> CellReader:
    """Return a reader whose refusals end with the words of ``advice``, if there are any."""

    def advised(value: object, path: str) -> object:
        try:
            return read(value, path)
        except Refusal as refusal:
            words = advice.of_value(column, value, refusal.kind)
            raise Refusal(refusal.kind, f"{refusal}. {words}", refusal.found) if words else refusal from None

    return advised
