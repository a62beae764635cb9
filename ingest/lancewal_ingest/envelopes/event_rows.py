"""Completion of the rows of events, after the decoder of their format has decoded them.  All formats share it.

1. Only rows of created, updated and read events are decoded.  Events that a snapshot has read are passed over if the
   contract skips snapshots.
2. Columns from the envelope (``Column.metadata``) are filled: operation, times, LSN.  A cell follows from the value
   alone.  The cell is null if the member is absent or not an integer, or if the column cannot hold the number.  No
   event is refused for it.
3. An upsert and a patch set these columns, as they set the columns of Kafka's metadata (``decode.metadata``).  A
   delete sets none.
4. These columns do not order rows: only the offset does.  An LSN goes back after a restart of the connector, many
   events share one, and other databases than PostgreSQL have none.
5. A value that the connector could not read leaves its cell as it was (``unavailable``).  In an update without the
   old row, a null of a list may be such a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import TRUNCATE
from lancewal_ingest.decode.metadata import as_times
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.decode.outcomes import ENVELOPE, Refusal
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import DecodedValues, Indexes, Mask, RefusedValue
from lancewal_ingest.envelopes.debezium_json import LETTERS, ROWS
from lancewal_ingest.envelopes.envelope import TRUNCATED, EnvelopeRules

Numbers = tuple[npt.NDArray[np.int64], Mask]
"""Integers of some events in one member, and a mask of the events that have one.  Events without one have 0."""
CHANGED = "source.ts_ms"
"""Member with the time of a change in the database, in milliseconds since 1970.  In an event that a snapshot has
read, it is the time of the read."""
_PREFIX = "envelope."
ROW, DELETE = "row", "delete"
"""Kinds of events that are not passed over."""


@dataclass(frozen=True, slots=True)
class EventFacts:
    """Facts about some events, apart from their rows.  Each array has one item per event."""

    letters: npt.NDArray[np.str_]
    """Letter of each event's operation, such as ``u``; empty if it is not known."""
    has_before: Mask
    """Whether an event has the row before the change, or its key."""
    numbers: Mapping[str, Numbers]
    """Integers of the events, by the member that holds them (``EventRows.members``)."""

    @staticmethod
    def none(count: int, members: Iterable[str]) -> EventFacts:
        """Return empty facts for ``count`` events."""
        numbers = {name: (np.zeros(count, np.int64), np.zeros(count, np.bool_)) for name in members}
        return EventFacts(np.full(count, "", "<U1"), np.zeros(count, np.bool_), numbers)

    def some(self, places: Indexes) -> EventFacts:
        """Return the facts of the events at ``places``, in that order."""
        numbers = {name: (of_all[places], has[places]) for name, (of_all, has) in self.numbers.items()}
        return EventFacts(self.letters[places], self.has_before[places], numbers)

    def followed_by(self, others: EventFacts) -> EventFacts:
        """Return the facts of these events, followed by ``others``."""
        numbers = {
            name: (np.concatenate([own[0], other[0]]), np.concatenate([own[1], other[1]]))
            for name, own in self.numbers.items()
            for other in [others.numbers[name]]
        }
        letters = np.concatenate([self.letters, others.letters])
        return EventFacts(letters, np.concatenate([self.has_before, others.has_before]), numbers)


class EventRows:
    """Completes decoded rows of one table: fills columns from the envelope, and handles values that the connector
    could not read.

    ``rows``: the columns of the table.
    """

    def __init__(self, rows: RowSchema, envelope: EnvelopeRules) -> None:
        self._types = {rows.columns.get_field_index(name): rows.columns.field(name).type for name in envelope.sources}
        self._members = [source.removeprefix(_PREFIX) for source in envelope.sources.values()]
        """Name of the event's member that fills each column of ``_types``, in that order."""
        self._unavailable = envelope.unavailable(rows)
        self.members: Sequence[str] = sorted({*self._members} - {"op"})
        """Members whose integers fill columns, sorted by name: some of ``source.lsn``, ``source.ts_ms`` and
        ``ts_ms``."""
        self.decoded = ROWS - {"r"} if envelope.skips_snapshots else ROWS
        """Operations whose rows are decoded."""

    def what(self, letter: str, *, has_row: bool, word: str) -> str:
        """Return the kind of an event: ``ROW``, ``DELETE``, or the kind under which it is passed over.

        ``letter``: the operation.  ``has_row``: whether ``after`` holds a row.  ``word``: what messages call a part
        of the envelope, ``member`` or ``field``.  Raises ``Refusal`` for a truncate, an unknown operation, or a
        missing row.
        """
        match letter:
            case "m":
                return "message"
            case "r" if "r" not in self.decoded:
                return "snapshot_row"
            case "d":
                return DELETE
            case "t":
                raise Refusal(TRUNCATE, TRUNCATED)
            case _ if letter not in LETTERS:
                raise Refusal(ENVELOPE, f"{word} 'op': expected one of {', '.join(sorted(LETTERS))}")
            case _ if not has_row:
                raise Refusal(ENVELOPE, f"{word} 'after': expected a row, because op is {letter!r}")
        return ROW

    def finished(self, decoded: DecodedValues, facts: EventFacts) -> DecodedValues:
        """Return the decoded rows in the form in which the table stores them (guarantees 2 and 5).

        ``facts``: about the events to which ``DecodedPart.indexes`` refer.
        """
        others, refused = Counter(decoded.other_names), [*decoded.refused]
        parts = [self._part(part, facts.some(part.indexes), others, refused) for part in decoded.parts]
        return replace(decoded, parts=parts, refused=refused, other_names=others)

    def _part(
        self, part: DecodedPart, facts: EventFacts, others: Counter[OtherName], refused: list[RefusedValue]
    ) -> DecodedPart:
        columns = list(part.columns)
        for (place, type_), member in zip(self._types.items(), self._members, strict=True):
            columns[place] = _column(member, type_, facts)
        part = replace(part, columns=columns)
        updates: Mask = facts.letters == "u"
        return self._unavailable.kept(part, updates, updates & ~facts.has_before, others, refused)


def _column(member: str, type_: pa.DataType, facts: EventFacts) -> pa.Array:
    """Return the column that is filled from the member ``member`` of events."""
    if member == "op":
        return pa.array(facts.letters.tolist(), type_)
    found, has = facts.numbers[member]
    if pa.types.is_timestamp(type_):
        return as_times(np.where(has, found, -1)).cast(type_)
    return pa.array(found, type_, mask=~has)
