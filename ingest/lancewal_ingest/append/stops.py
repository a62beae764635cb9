"""Stops of partitions, and the errors of those that stop before a record.  Each says what a person can do about the
record.

Guarantees
 1. The error has the record's topic, partition and offset.
 2. Advice to change a policy names the setting too: ``table alter`` refuses a contract that the settings contradict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lancewal_core.errors import BadRecord, ColumnUnknown, KeyFormChanged, LancewalError, Misrouted, WrongFormat
from lancewal_core.names.ids import Position, Region
from lancewal_core.record_keys.key_form import KeyForm
from lancewal_core.table.contract import KEY_FORM_CHANGED, OTHER_RECORD, TRUNCATE, UNAVAILABLE_VALUE
from lancewal_ingest.decode.outcomes import Rejected

UNKNOWN_COLUMN = "unknown_column"


@dataclass(frozen=True, slots=True)
class Stop:
    """A partition that must stop, and the error that says why."""

    region: Region
    at: Position
    """Position before which the partition stops."""
    error: LancewalError
    new_from: Position | None = None
    """Offset of a record that belongs here only by the topic's number of partitions.  None for other causes."""
    key_form: KeyForm | None = None
    """Form of the record's key, which the contract does not list.  None for other causes."""


_FOR_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        UNKNOWN_COLUMN: "If the records are right, add the member as a column: `lancewal table alter --add-column`. With "
        "`field` the column has another name. Or ignore such members: `--on unknown-column=ignore`. The dead letters name "
        "the member (`lancewal dead-letter list`). ",
        "type": "If the records are right, the column needs another type. In plain JSON it may need a "
        "form, such as `json: number_text`. Drop the column. Add it with that type in a second call: `lancewal table alter "
        "--add-column`. ",
    }
)
"""Advice about the columns, by the kind of the rejected records."""
_WIDER = "If the source has a wider type now: `lancewal table alter --widen-column`. "


def stopped_by(bad: Rejected, region: Region, *, reads_schemas: bool, names_columns: bool) -> LancewalError:
    """Return the error of a partition that stops before a bad record.

    ``reads_schemas``: whether a field of a schema without a column stops the partition.  ``names_columns``: whether the
    message may name a field without a column."""
    alone = f"To go on without this record alone: {_reject(bad, region)}"
    if bad.kind == UNKNOWN_COLUMN:
        error = ColumnUnknown if reads_schemas else BadRecord
        last = "Or have ingest add columns by itself: `--on unknown-column=add`" if reads_schemas else alone
        what = bad.with_name if names_columns else bad.message
        return region.record_error(
            error,
            bad.offset,
            f"{what}. Add the column: `lancewal table alter --add-column`. If a column was renamed: `--rename-column`. Or "
            f"ignore such fields: `lancewal table alter --on unknown-column=ignore`. {last}",
        )
    if bad.kind in (TRUNCATE, UNAVAILABLE_VALUE):
        return region.record_error(BadRecord, bad.offset, f"{bad.message}. {alone}")
    if bad.kind == KEY_FORM_CHANGED:
        return region.record_error(
            KeyFormChanged,
            bad.offset,
            f"{bad.message}. Under another schema a row may have another key, and lie in another partition. If keys keep "
            "their partitions (there is one partition, or producers choose partitions themselves): `lancewal table alter "
            f"--key-form {bad.found}`. Otherwise have producers use the former schema, or write into a new topic for a new "
            f"table. {alone}",
        )
    policy = "other_record" if bad.kind == OTHER_RECORD else "bad_record"
    wider = _WIDER if bad.kind == "range" else ""
    message = (
        f"{bad.message} ({bad.kind}); the contract's on_{policy} is 'stop'. {wider}{_ways_on(policy, bad, region)}"
    )
    return region.record_error(BadRecord, bad.offset, message)


def stopped_by_misrouted(bad: Rejected, region: Region, cause: str) -> Misrouted:
    """Return the error of a partition that stops before a misrouted record.  ``cause`` says why the record is there."""
    return region.record_error(Misrouted, bad.offset, f"{bad.message}. {cause}. {_ways_on('misrouted', bad, region)}")


def stopped_by_format(bad: Rejected, region: Region, found: str) -> WrongFormat:
    """Return the error of a partition without a row that stops before a record of another format.  ``found`` says what
    was found."""
    ways_on = _ways_on("wrong_format", bad, region, "To make dead letters of such records")
    return region.record_error(
        WrongFormat,
        bad.offset,
        f"{found}. The partition has no row yet, and table.on_wrong_format is 'stop'. "
        f"{_FOR_COLUMNS.get(bad.kind, '')}{ways_on}",
    )


def _ways_on(policy: str, bad: Rejected, region: Region, aim: str = "To skip such records") -> str:
    return (
        f"{aim}, without a restart: `lancewal table alter --on {policy.replace('_', '-')}=dead-letter`. If your settings have "
        f"table.on_{policy}, change it there first. To go on without this record alone: {_reject(bad, region)}"
    )


def _reject(bad: Rejected, region: Region) -> str:
    return f"`lancewal offset reject {region.topic}-{region.partition}-{bad.offset}`"
