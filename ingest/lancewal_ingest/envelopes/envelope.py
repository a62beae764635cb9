"""The envelope around the rows of one contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.sections import PLACEHOLDER, Envelope, is_of_envelope
from lancewal_core.table.contract import Contract
from lancewal_ingest.decode.avro.schema import AvroRecord, AvroUnion
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.envelopes.unavailable import UnavailableValues

NO_FIELD = "expected a schema whose field after is a record or null (in Avro a union of both): it holds the row"
TRUNCATED = (
    "the source table was truncated. This record lies in one partition, and says nothing about the rows of the others: "
    "delete them by hand, or make a new table. To go on with all rows: `lancewal table alter --on truncate=ignore`"
)


@dataclass(frozen=True, slots=True)
class EnvelopeRules:
    """The rules of a contract about the envelope of its values."""

    kind: Envelope = "none"
    skips_snapshots: bool = False
    """Whether rows that a snapshot has read are passed over."""
    placeholder: str = PLACEHOLDER
    """Text in place of a value that the connector could not read."""
    keeps: bool = True
    """Whether the table keeps such values: it allows patches."""
    as_null: bool = False
    """Whether such a value is null where it cannot be kept."""
    never: frozenset[str] = frozenset()
    """Columns whose values are never left out."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Metadata of each column that the envelope fills, by the column's name."""

    def unavailable(self, rows: RowSchema) -> UnavailableValues:
        """Return the rules about values that the connector could not read, for the columns of ``rows``."""
        never = self.never | self.sources.keys()
        return UnavailableValues(rows, self.placeholder, never, keeps=self.keeps, as_null=self.as_null)

    def stand_ins(self, rows: RowSchema, naming: Naming) -> Mapping[str, str]:
        """Return the placeholder of each JSON column that may be unavailable (``Naming.stand_ins``)."""
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
    """Return the record type of rows within the schema of an envelope; None if the schema has none."""
    types = {field.name: field.type for field in envelope.fields}
    after = types.get("after")
    others = after.others if isinstance(after, AvroUnion) else [after]
    (found,) = others if len(others) == 1 else [None]
    return found if isinstance(found, AvroRecord) else None
