"""The note by which a snapshot says of which cut it is: ``lancewal.cut`` in the metadata of its branch.

With the notes of all snapshots of a cut, the cut's record can be written again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from lancewal_core.catalog.cut import Cut, CutTable, Holds
from lancewal_core.catalog.entry import TableName
from lancewal_core.names.words import cut_name
from lancewal_core.store.json_model import StoredVersion, Version1, Word
from lancewal_core.store.json_object import WHOLE_MAX
from lancewal_core.table.snapshots import Snapshot

_WHERE_MAX = 4_096
_Whole = Annotated[int, Field(ge=0, le=WHOLE_MAX)]


class CutNote(StoredVersion):
    """Note in a snapshot about the cut for which it was made."""

    what = "note of a cut"
    format: Version1 = 1
    cut: Annotated[str, AfterValidator(cut_name)]
    """Name of the cut."""
    write_id: Word
    """Id of the cut's record, also of one that was never written."""
    catalog: Annotated[str, Field(max_length=_WHERE_MAX)]
    """Address of the catalog, without secrets, for which the cut was made."""
    table: TableName
    """Name of the table that the snapshot is of."""
    tables: Annotated[tuple[TableName, ...], Field(min_length=1)]
    """Names of all tables of the cut."""
    holds: Holds
    asked_ms: _Whole
    took_ms: _Whole

    def text(self) -> str:
        """Return the note as text."""
        return self.model_dump_json()

    def record(self, tables: Mapping[str, CutTable], snapshots: Collection[Snapshot]) -> Cut:
        """Return the record of the kept cut.  ``snapshots``: those of all its tables."""
        return Cut(
            name=self.cut,
            moving=False,
            holds=self.holds,
            tables=dict(tables),
            asked_ms=self.asked_ms,
            took_ms=self.took_ms,
            made_ms=max(snapshot.created_ms for snapshot in snapshots),
            until_ms=min((one.until_ms for one in snapshots if one.until_ms is not None), default=None),
            write_id=self.write_id,
        )


def cut_note(text: str, where: str) -> CutNote:
    """Parse the note of a snapshot.  ``where`` names the snapshot in errors.  Raises ``FormatUnknown`` or
    ``ObjectCorrupt`` if it cannot be read.
    """
    return CutNote.decode(text.encode(), where)
