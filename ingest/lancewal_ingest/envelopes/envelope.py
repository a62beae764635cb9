"""Rules of one contract about the envelope around its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.sections import PLACEHOLDER, Envelope, is_of_envelope
from lancewal_core.table.contract import Contract
from lancewal_ingest.decode.avro.schema import AvroRecord, AvroUnion
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.envelopes.unavailable import UnavailableValues

NO_FIELD = "expected a schema whose field 'after' holds the row: a record or null (in Avro a union of both)"
TRUNCATED = (
    "the source table was truncated. This record lies in one partition, and says nothing about rows of other partitions. "
    "Delete the rows by hand, or make a new table. To go on with all rows: `lancewal table alter --on truncate=ignore`"
)


@dataclass(frozen=True, slots=True)
class EnvelopeRules:
    """The rules of a contract about the envelope of its values."""

    kind: Envelope = "none"
    skips_snapshots: bool = False
    """Whether rows that a Debezium snapshot has read are passed over."""
    placeholder: str = PLACEHOLDER
    """Text that the connector writes in place of a value that it could not read."""
    keeps: bool = True
    """Whether the contract allows patches.  Only then can a cell keep its former value if the connector could not
    read the value."""
    as_null: bool = False
    """Whether a value that the connector could not read becomes null if the cell cannot keep its former value.  If
    false, the record is refused."""
    never: frozenset[str] = frozenset()
    """Columns whose values a connector never leaves out (``toast: never``), by the table's names."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Kind of metadata, such as ``envelope.op``, of each column that the envelope fills, by the column's name."""

    def unavailable(self, rows: RowSchema) -> UnavailableValues:
        """Return the rules about values that the connector could not read, for the columns of ``rows``."""
        never = self.never | self.sources.keys()
        return UnavailableValues(rows, self.placeholder, never, keeps=self.keeps, as_null=self.as_null)

    def stand_ins(self, rows: RowSchema, naming: Naming) -> Mapping[str, str]:
        """Return ``Naming.stand_ins``: the placeholder for each column of form ``json_text`` that a connector may
        leave out.
        """
        may_be = {naming.fields.get(name, name) for name in rows.columns.names if name not in self.never}
        return {name: self.placeholder for name, form in naming.forms.items() if form == "json_text" and name in may_be}


NO_ENVELOPE = EnvelopeRules()


def envelope_of(contract: Contract) -> EnvelopeRules:
    """Return the rules of a contract about the envelope of its values."""
    return EnvelopeRules(
        kind=contract.envelope,
        skips_snapshots=contract.snapshot_rows == "skip",
        placeholder=contract.unavailable_value,
        keeps=contract.patches,
        as_null=contract.on_unavailable_value == "ignore",
        never=frozenset(column.name for column in contract.columns if column.toast is not None),
        sources={column.name: source for column in contract.columns if is_of_envelope(source := column.metadata or "")},
    )


def row_of(envelope: AvroRecord) -> AvroRecord | None:
    """Return the type of the rows in an envelope: the record in the field ``after``.  Return None if the field is
    absent, or is neither a record nor a union of one record and null.
    """
    types = {field.name: field.type for field in envelope.fields}
    after = types.get("after")
    others = after.others if isinstance(after, AvroUnion) else [after]
    (found,) = others if len(others) == 1 else [None]
    return found if isinstance(found, AvroRecord) else None
