"""The record of a cut: states of several tables that are read together.

A *kept* cut names a snapshot of each table, and is never changed.  A *moving* cut names a receipt of each table.  Each
publication replaces the one before as a whole, under the next number.

A snapshot says of which kept cut it is by a *note*: ``lancewal.cut`` in the metadata of its branch.  With the notes
of all snapshots of a cut, the cut's record can be written again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from lancewal_core.catalog.entry import CatalogRecord, TableName
from lancewal_core.names.words import cut_name
from lancewal_core.store.json_model import StoredModel, StoredVersion, Version1, Word
from lancewal_core.store.json_object import WHOLE_MAX

if TYPE_CHECKING:  # a catalog is asked without Arrow, which takes long to load
    from lancewal_core.table.snapshots import Snapshot

_URI_MAX = 4_096
_WHERE_MAX = 4_096
_RECEIPT_MAX = 32 << 20
_Whole = Annotated[int, Field(ge=0, le=WHOLE_MAX)]
Holds = Literal["positions", "transactions"]
"""Guarantee of a cut.  ``positions``: each table has the records up to its positions.  ``transactions``: the cut also
contains each transaction of the source whole, or not at all."""


def snapshot_name(name: str, write_id: str) -> str:
    """Return the name of the snapshots that belong to the kept cut ``name``.  ``write_id``: 8 or more hex digits."""
    return f"{snapshots_begin(name)}{write_id[:8]}"


def snapshots_begin(name: str) -> str:
    """Return the prefix of the names of all snapshots of the kept cut ``name``.  Snapshots of a cut ``NAME-x`` have
    this prefix too.
    """
    return f"{name}-"


class CutTable(StoredModel):
    """State of one table in a cut."""

    uri: Annotated[str, Field(min_length=1, max_length=_URI_MAX)]
    table_uuid: Word
    receipt: Annotated[str, Field(min_length=1, max_length=_RECEIPT_MAX)]
    """Text of the receipt at which the table is read."""
    snapshot: Word | None = None
    """Name of the snapshot that keeps this state; None in a moving cut."""


class Cut(CatalogRecord):
    """One version of a cut."""

    what = "cut"
    format: Version1 = 1
    name: Annotated[str, AfterValidator(cut_name)]
    moving: bool
    number: Annotated[int, Field(ge=1, le=WHOLE_MAX)] = 1
    """Number of the publication of a moving cut, from 1; 1 for a kept cut."""
    holds: Holds = "positions"
    tables: Annotated[dict[TableName, CutTable], Field(min_length=1)]
    asked_ms: _Whole
    """Time when the ends of the topics were asked for, or the durable positions were read, in milliseconds since
    1970."""
    took_ms: _Whole
    """Milliseconds from the first question for positions to the last answer.  The positions of two topics may be that
    far apart in time."""
    made_ms: _Whole
    until_ms: _Whole | None = None
    """Time from which on garbage collection drops the snapshots of a kept cut; None: never."""
    left_out: dict[TableName, str] = Field(default_factory=dict)
    """Tables that were asked for and are not in this moving cut, each with the reason."""
    write_id: Word
    """Differs in every version of every cut."""

    def is_over(self, now_ms: int) -> bool:
        """Return whether the time of a kept cut is over, so that garbage collection drops its snapshots."""
        return self.until_ms is not None and self.until_ms <= now_ms


class CutNote(StoredVersion):
    """Note in a snapshot about the cut for which it was made."""

    what = "note of a cut"
    format: Version1 = 1
    cut: Annotated[str, AfterValidator(cut_name)]
    """Name of the cut."""
    write_id: Word
    """``Cut.write_id`` of the cut's record.  That record was perhaps never written."""
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
        """Return the record of the kept cut, from its ``tables`` and the ``snapshots`` of all of them."""
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
