"""Columns that are filled from the envelope of each event (``Column.metadata``): its operation, its times, its LSN.

1. A cell follows from the value alone.  A member that is absent or no integer gives null, and so does a number that the column
   does not hold.  No event is refused for it.
2. An upsert and a patch set these columns, as those of Kafka's metadata (``decode.metadata``).  A delete sets none.
3. Nothing here orders rows: only the offset does.  An LSN goes back after a restart of the connector, many events share
   one, and other databases than PostgreSQL have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.metadata import as_times
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import Mask

Numbers = tuple[npt.NDArray[np.int64], Mask]
"""Numbers of some events, and which events have one."""
_PREFIX = "envelope."
CHANGED = "source.ts_ms"
"""Member with the time of a change in the database; of a snapshot's row, with the time of the read."""


class EventColumns:
    """The columns of one table that are filled from the envelope.  ``sources``: the kind of metadata for each column,
    by its name.
    """

    def __init__(self, rows: RowSchema, sources: Mapping[str, str]) -> None:
        self._paths = {
            rows.columns.get_field_index(name): source.removeprefix(_PREFIX) for name, source in sources.items()
        }
        self._types = {place: rows.columns.field(place).type for place in self._paths}
        self.numbers: Sequence[str] = sorted({path for path in self._paths.values() if path != "op"})
        """Members with numbers that the columns need: ``ts_ms``, ``source.ts_ms``, ``source.lsn``."""

    def __bool__(self) -> bool:
        return bool(self._paths)

    def filled(self, part: DecodedPart, letters: Sequence[str], numbers: Mapping[str, Numbers]) -> DecodedPart:
        """Return the rows of a part with these columns filled in.

        ``letters``: Debezium's operation (``op``) of each row's event.  ``numbers``: times and LSNs of each row's
        event, by the name of the member.
        """
        columns = list(part.columns)
        for place, path in self._paths.items():
            type_ = self._types[place]
            if path == "op":
                columns[place] = pa.array(letters, type_)
                continue
            found, has = numbers[path]
            if pa.types.is_timestamp(type_):
                columns[place] = as_times(np.where(has, found, -1)).cast(type_)
            else:
                columns[place] = pa.array(found, type_, mask=~has)
        return replace(part, columns=columns)
