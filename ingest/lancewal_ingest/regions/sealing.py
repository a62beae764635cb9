"""Seals or re-anchors the MemTables for which it is time (``policy``), and tells when that is late.

Guarantees
 1. It is called while no segment is unsettled: an index changes only then (``seal``).
 2. What is due in a turn goes to the store at once, each page in one swap.
 3. A region that another owner has claimed is dropped, one whose index has no room for a further generation, or is damaged,
    put off; the others go on.  A store that fails is asked once a turn: the loop must turn.
"""

from __future__ import annotations

from typing import assert_never

from lancewal_core.errors import Corrupt, LancewalError, OwnershipLost, Refresh, Retry
from lancewal_core.region.index import GenerationRecord
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.context import IngestContext
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.partitions import OpenRegion, Partitions
from lancewal_ingest.regions.policy import GenerationStats, MemoryPolicy, SealDecision, SealPolicy
from lancewal_ingest.regions.seal import Moved, seal_and_reanchor

_SEALING_MAX_S = 5.0
"""Longer than any seal that is merely slow."""


class Sealing:
    """See the module docstring; what is sealed goes to ``flushes``."""

    def __init__(
        self,
        context: IngestContext,
        observer: Observer,
        partitions: Partitions,
        flushes: FlushQueue,
        policy: SealPolicy,
        memory: MemoryPolicy,
    ) -> None:
        self._context = context
        self._observer = observer
        self._partitions = partitions
        self._flushes = flushes
        self._policy = policy
        self._memory = memory
        self._since: float | None = None
        """Since when something should be sealed, or re-anchored; a try alone may take half a minute."""

    @property
    def late(self) -> bool:
        """Whether no generation could be sealed for a while.  May be asked from any thread."""
        since = self._since
        return since is not None and self._now() - since >= _SEALING_MAX_S

    def advance(self, writer: LogWriter) -> None:
        """One turn over the open regions, whose entries go to ``writer``."""
        open_ = self._partitions.open
        largest = max(open_.values(), key=lambda r: r.memtable.nbytes, default=None)
        total = sum(r.memtable.nbytes for r in open_.values())
        early = largest if largest is not None and self._memory.seal_largest(total) else None
        full: list[OpenRegion] = []
        empty: list[OpenRegion] = []
        for region in open_.values():
            match self._decide(region, writer, early=region is early):
                case SealDecision.KEEP:
                    pass
                case SealDecision.SEAL:
                    full.append(region)
                case SealDecision.REANCHOR:
                    empty.append(region)
                case decision:
                    assert_never(decision)
        if not full and not empty:
            self._since = None
            return
        if self._since is None:
            self._since = self._now()
        answers = seal_and_reanchor(
            self._context, writer, [region.memtable for region in full], [region.memtable for region in empty]
        )
        failed: list[LancewalError] = []
        for region in (*full, *empty):
            match answers[region.memtable.region]:
                case Moved(record=record, newest=newest):
                    if newest is not record:
                        self._follow(region, record, newest)
                case OwnershipLost() as error:
                    self._partitions.drop(region.memtable.region.partition, error)
                case Corrupt() as error:
                    self._partitions.put_off(region.memtable.region.partition, error)
                case error:
                    failed.append(error)
        for error in dict.fromkeys(failed):  # one may be that of a whole page
            if not isinstance(error, Refresh | Retry):
                raise error
            self._observer.failed("seal", error)
        if not any(isinstance(error, Retry) for error in failed):
            self._since = None

    def _decide(self, region: OpenRegion, writer: LogWriter, *, early: bool) -> SealDecision:
        memtable = region.memtable
        stats = GenerationStats(
            len(memtable.entries),
            memtable.rows,
            memtable.nbytes,
            self._now() - memtable.opened_at,
            writer.next_unsent - memtable.first_sequence,
        )
        decision = self._policy.decide(stats)
        return SealDecision.SEAL if early and memtable.entries else decision

    def _follow(self, region: OpenRegion, sealed: GenerationRecord, following: GenerationRecord) -> None:
        memtable = region.memtable
        region.memtable = MemTable(
            memtable.region, following.generation, following.first_sequence, memtable.position, self._now()
        )
        region.memtable.last_entry_at = memtable.last_entry_at
        self._flushes.add(memtable, sealed)
        self._observer.sealed(memtable.region, sealed)

    def _now(self) -> float:
        return self._context.clock.monotonic()
