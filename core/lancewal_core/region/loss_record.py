"""The record of an accepted loss: offsets of a region that Kafka has deleted.  Kafka deleted them before they became
durable, or they were durable in a WAL segment that is lost.

On a compacted topic, only deletes may be lost.  Then ingest reads the offsets, and the records that are left there are
in the table.  If the topic lost its tail, producers write other records at these offsets, and those are lost.  The
records that were there before are durable and stay.

The record is written before anything skips its offsets, so that every gap has a record.  It is immutable, kept for
ever, and deleted by nobody.  Its key is ``losses/<first>.json`` in the folder of the region (``paths.loss_record``).
Another loss from the same position on, with another kind, end or segment, is recorded next to it, as ``<first>-2.json``
and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from lancewal_core.names import paths
from lancewal_core.names.ids import Making, Position, Region
from lancewal_core.store.json_model import StoredVersion, Version1, Word
from lancewal_core.store.object_store import Done, ObjectStore, put_new


def _key_of_a_segment(text: str) -> str:
    if paths.parse_wal_segment(text) is None:
        raise ValueError("it is not the key of a WAL segment")
    return text


class LossRecord(StoredVersion):
    """Offsets [first, next) that are lost, who accepted the loss, and when."""

    what = "loss record"
    format: Version1 = 1
    first: int = Field(ge=0)
    next: int = Field(ge=1)
    accepted_at_ms: int
    accepted_by: Word
    """Random owner id of the command that accepted the loss, not of the member that had the partition."""
    kind: Literal["offsets", "tombstones", "replaced"] = "offsets"
    """Kind of the loss.  ``offsets``: none of the records is in a table.  ``tombstones``: deletes among them may be
    lost.  ``replaced``: Kafka ended at ``first`` while [first, next) was durable; records that Kafka gets there later
    are never read."""

    segment: Annotated[str, AfterValidator(_key_of_a_segment)] | None = None
    """Key of the lost WAL segment in which the offsets had been durable.  Earlier reads may have seen its rows."""

    def encode(self) -> bytes:
        # Records without these members keep the bytes that earlier releases gave them.
        left_out = {name for name, value in (("kind", "offsets"), ("segment", None)) if getattr(self, name) == value}
        return self.model_dump_json(indent=1, exclude=left_out).encode()

    def same(self, other: LossRecord) -> bool:
        """Return whether both records are of the same loss, whoever accepted it when."""
        mine, theirs = ((one.kind, one.first, one.next, one.segment) for one in (self, other))
        return mine == theirs


def write_loss(store: ObjectStore, region: Region, loss: LossRecord, making: Making | None) -> None:
    """Store the record, unless an earlier try has stored a record of the same loss."""
    for number in count(1):
        key = paths.loss_record(region, Position(loss.first), making, number)
        outcome = put_new(store, key, loss.encode(), "run the command again")
        if isinstance(outcome, Done) or LossRecord.decode(outcome.found, key).same(loss):
            return


def read_losses(store: ObjectStore, region: Region, making: Making | None) -> tuple[LossRecord, ...]:
    """Return all accepted losses of a region, in order of their beginnings, longer ones first."""
    found = []
    for info in store.list(paths.losses_prefix(region, making)):
        data = store.get(info.key) if paths.parse_loss_record(info.key) is not None else None
        if data is not None:
            found.append(LossRecord.decode(data, info.key))
    return tuple(sorted(found, key=lambda loss: (loss.first, -loss.next)))


def behind_losses(losses: Sequence[LossRecord], at: Position) -> Position:
    """Return the first position at or after ``at`` that no accepted loss of the kind ``offsets`` covers.

    ``losses`` must be in the order of ``read_losses``.  Losses of other kinds do not count: at their positions there
    are records that ingest reads, or that are durable.
    """
    for loss in losses:
        if loss.kind == "offsets" and loss.first <= at < loss.next:
            at = Position(loss.next)
    return at


def replaced_below(losses: Sequence[LossRecord]) -> Position:
    """Return the position below which Kafka may have other records than those that were read; 0 if there is no loss
    of the kind ``replaced``."""
    return Position(max((loss.next for loss in losses if loss.kind == "replaced"), default=0))
