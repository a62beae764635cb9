"""The record of a cut: states of several tables that are read together.

A *kept* cut names a snapshot of each table, and is never changed.  A *moving* cut names a receipt of each table.  Each
publication replaces the one before as a whole, under the next number.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from lancewal_core.catalog.entry import CatalogRecord, TableName
from lancewal_core.names.words import cut_name
from lancewal_core.store.json_model import StoredModel, Version1, Word
from lancewal_core.store.json_object import WHOLE_MAX

_URI_MAX = 4_096
_RECEIPT_MAX = 32 << 20
_Whole = Annotated[int, Field(ge=0, le=WHOLE_MAX)]
Holds = Literal["positions", "transactions"]
"""``positions``: each table has the records up to its positions.  ``transactions``: no transaction of the source is cut in
two either."""


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
    """Counts the publications of a moving cut; 1 for a kept one."""
    holds: Holds = "positions"
    tables: Annotated[dict[TableName, CutTable], Field(min_length=1)]
    asked_ms: _Whole
    """When the ends of the topics were asked for, or the durable positions were read; in milliseconds since 1970."""
    took_ms: _Whole
    """Milliseconds that this round took.  Two tables may differ by records of this time."""
    made_ms: _Whole
    until_ms: _Whole | None = None
    """Time from which on garbage collection drops the snapshots of a kept cut; None: never."""
    left_out: dict[TableName, str] = Field(default_factory=dict)
    """Tables that were asked for and are not in a moving cut, each with the reason."""
    write_id: Word
    """Differs in every version of every cut."""

    def is_over(self, now_ms: int) -> bool:
        """Return whether the time of a kept cut is over, so that garbage collection drops its snapshots."""
        return self.until_ms is not None and self.until_ms <= now_ms
