"""Results of a decoder: a batch of rows, and the records that gave no row.

A record that gave no row is *rejected*, with its reason, or *passed over*.  A record is passed over if its format says that
it is no row, and nothing is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.own_rows import own_rows
from lancewal_core.table.contract import KEY_FORM_CHANGED, OTHER_RECORD, TRUNCATE, UNAVAILABLE_VALUE
from lancewal_ingest.decode.naming import OtherName

ENVELOPE = "envelope"
TOO_LARGE = "too_large"
WRONG_FORMAT = "wrong_format"
KEY_FORM = "key_form"
KEY_DIFFERS = "key_differs"

KINDS: dict[str, str] = {
    TOO_LARGE: "key, value and headers together are longer than record_bytes_max, or the row takes more than 512 MiB",
    "unreadable_header": "the name of a header is not UTF-8, so the record's operation is unknown",
    "cut_letter": "a dead letter without its record's value, produced to the table's topic as if it were the record",
    "unknown_header": "a header begins with lancewal. and is neither lancewal.op nor a header of a complete dead letter",
    "unknown_op": "the header lancewal.op comes twice, is not upsert, patch or delete, or comes with an envelope",
    "patch_not_allowed": "a patch, and the table's contract does not allow patches",
    "null_value": "no value, but the operation needs one, or the Kafka key cannot say what to delete",
    WRONG_FORMAT: "the value is of another format than the table's, such as a schema registry's or Debezium's",
    "unknown_schema": "the schema registry did not know the schema that the value names, or no process has stored it",
    "unusable_schema": "the schema that the value names or contains is not valid, or does not fit the table's columns",
    OTHER_RECORD: "a record with another name than table.format.record, in a topic with several record types",
    "patch_fields": "a patch whose header lancewal.fields is missing, or names a column that its schema does not have",
    "too_deep": "objects, arrays, records or maps are nested deeper than any column can be",
    "not_json": "not UTF-8, or not one JSON value",
    "malformed": "the bytes are not exactly one value of the schema that they name or contain",
    "duplicate_member": "a JSON object has a member twice, or under its current and a former name",
    TRUNCATE: "the source table was truncated. Such a record never has a dead letter",
    ENVELOPE: "the envelope around the row names no operation, or lacks the row that its operation needs",
    "not_an_object": "JSON, but not an object",
    "unknown_column": "a member is not a column of the table, or not a member of a struct column",
    "missing_key": "a primary key column is absent or null",
    "type": "a value does not have the JSON form of its column, or its schema has a type that does not fit the column",
    "range": "a value has the right form, but its column cannot hold it exactly",
    UNAVAILABLE_VALUE: "a connector could not read a value, and the table cannot keep the former one",
    KEY_FORM: "the Kafka key is missing or not in the table's format, but deletes or comparisons with rows need it",
    KEY_DIFFERS: "the Kafka key is that of another row (keys are compared with rows)",
    KEY_FORM_CHANGED: "the Kafka key is the row's, but names another schema than the table's keys",
}
"""Kinds of rejection and what they mean.  If several apply to a record, it nearly always gets the first of them here."""

OF_COLUMNS = frozenset(
    {WRONG_FORMAT, "duplicate_member", "unknown_column", "type", "range", KEY_FORM, KEY_FORM_CHANGED}
)
"""Kinds of rejections that a newer contract version might not make, since it may have other columns or key forms."""

_FOUND_MAX = 100
"""Largest number of characters of an unexpected name that are shown."""

PASSED_OVER: dict[str, str] = {
    "heartbeat": "a heartbeat of the connector, which says only that it is alive",
    "transaction": "the begin or the end of a transaction at the source",
    OTHER_RECORD: "a record with another name than table.format.record, while table.on_other_record is ignore",
    "snapshot_row": "a row from a snapshot of the source, while table.snapshot_rows is skip",
    "message": "a logical message in the source's log, which belongs to no table",
}
"""Kinds of records that are passed over, and what they are.  An entry does not list them: they are gaps in it."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that gave no row, and why."""

    offset: int
    kind: str
    """One of ``KINDS``."""
    message: str
    """Text that names the column and what was expected.  Never holds content of the record."""
    found: str = ""
    """Name of the unexpected member or header, or the key form that the contract does not list; empty without one.
    The dead letter has it: it holds the record anyway.  The error of a stopped partition has a form.  It has a name
    only if a schema or a connector wrote the name, since then it is that of a column."""

    @property
    def with_name(self) -> str:
        """The message, followed by the name of the unexpected member or header."""
        if not self.found:
            return self.message
        text = ascii(self.found[:_FOUND_MAX])
        return f"{self.message}. Found: {text if len(text) <= _FOUND_MAX else f'{text[:_FOUND_MAX]}...'}"


@dataclass(frozen=True, slots=True)
class Decoded:
    """Result for some records, each of which is a row, rejected, or passed over."""

    rows: pa.RecordBatch
    """Rows with the columns of ``RowSchema.wal``, in the order of the records."""
    is_row: npt.NDArray[np.bool_]
    """True for each record that is a row."""
    rejected: tuple[Rejected, ...]
    """Rejections, in the order of the records."""
    is_rejected: npt.NDArray[np.bool_]
    """True for each record that is rejected.  A record that is no row, and not rejected, is passed over."""
    other_names: Mapping[OtherName, int] = field(default_factory=dict)
    """Number of times that the rows use each of these names (``OtherName``)."""
    new_fields: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Type of each field that the schemas of rejected records have, and the table has no column for, by name."""
    passed_over: Mapping[str, int] = field(default_factory=dict)
    """Number of records that are passed over, by kind (``PASSED_OVER``)."""
    changed_ms: int = 0
    """Time at which the source made one of the newest changes among the records, in milliseconds since 1970; 0 if
    none tells a time."""

    @property
    def is_placed(self) -> npt.NDArray[np.bool_]:
        """True for each record whose partition can be checked: it is a row, or it was rejected as
        ``key_form_changed``, with a good key.
        """
        other_form = [one.kind == KEY_FORM_CHANGED for one in self.rejected]
        if not any(other_form):
            return self.is_row
        placed = self.is_row.copy()
        placed[self.is_rejected] = other_form
        return placed

    def part(self, begin: int, end: int, first_row: int, first_rejected: int) -> Decoded:
        """Return the result for the records from ``begin`` to before ``end``.  Its rows are copied, and its counts are
        empty.

        ``first_row`` and ``first_rejected``: the numbers of rows and of rejections before ``begin``.
        """
        is_row, is_rejected = self.is_row[begin:end], self.is_rejected[begin:end]
        rows = own_rows(self.rows.slice(first_row, int(np.count_nonzero(is_row))))
        end_rejected = first_rejected + int(np.count_nonzero(is_rejected))
        return Decoded(rows, is_row, self.rejected[first_rejected:end_rejected], is_rejected)


class Refusal(Exception):
    """Error of the current record inside the decoder.  The decoder catches the error and makes it a ``Rejected``."""

    def __init__(self, kind: str, message: str, found: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.found = found
