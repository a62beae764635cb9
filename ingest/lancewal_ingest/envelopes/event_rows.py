"""Rows of events, after the decoder of the format has decoded them: the same for all formats.

1. Only rows of created, updated and read events are decoded, and none that a snapshot has read if the contract skips them.
2. Columns of events are filled (``event_columns``), and values that the connector could not read left alone
   (``unavailable``).
3. An update without the old row does not tell whether a null of a list is such a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import DecodedValues, Indexes, Mask, RefusedValue
from lancewal_ingest.envelopes.debezium_json import ROWS
from lancewal_ingest.envelopes.envelope import EnvelopeRules
from lancewal_ingest.envelopes.event_columns import EventColumns, Numbers


@dataclass(frozen=True, slots=True)
class EventFacts:
    """Facts about events apart from their rows, by the events' indexes."""

    letters: npt.NDArray[np.str_]
    """Operation of each event; empty if it is not known."""
    has_before: Mask
    """Whether an event has the row before the change, or its key."""
    numbers: Mapping[str, Numbers]
    """Numbers of the events in each member that ``EventColumns.numbers`` names."""

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
    """Fills event columns and unavailable values in decoded rows.  ``rows``: the columns of one table."""

    def __init__(self, rows: RowSchema, envelope: EnvelopeRules) -> None:
        self._columns = EventColumns(rows, envelope.sources)
        self._unavailable = envelope.unavailable(rows)
        self.members = self._columns.numbers
        """Members of events with numbers that the columns need."""
        self.decoded = ROWS - {"r"} if envelope.skips_snapshots else ROWS
        """Operations whose rows are decoded."""

    def finished(self, decoded: DecodedValues, facts: EventFacts) -> DecodedValues:
        """Return the decoded rows in the form in which the table stores them.  ``facts``: about the events of these
        rows.
        """
        others, refused = Counter(decoded.other_names), [*decoded.refused]
        parts = [self._part(part, facts.some(part.indexes), others, refused) for part in decoded.parts]
        return replace(decoded, parts=parts, refused=refused, other_names=others)

    def _part(
        self, part: DecodedPart, facts: EventFacts, others: Counter[OtherName], refused: list[RefusedValue]
    ) -> DecodedPart:
        if self._columns:
            part = self._columns.filled(part, facts.letters.tolist(), facts.numbers)
        updates: Mask = facts.letters == "u"
        return self._unavailable.kept(part, updates, updates & ~facts.has_before, others, refused)
