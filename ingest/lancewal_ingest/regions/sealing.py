"""Seals or re-anchors the MemTables for which it is time (``policy``), and tells when that is late.

Guarantees
 1. It is called while no segment is unsettled: an index changes only then (``seal``).
 2. A region that another owner has claimed is dropped, one whose index has no room for a further generation put off; the
    others go on.  A store that fails is asked once a turn: the loop must turn.
"""

from __future__ import annotations

from typing import assert_never

from lancewal_core.errors import ObjectTooLarge, OwnershipLost, Refresh, Retry
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.context import IngestContext
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.partitions import OpenRegion, Partitions
from lancewal_ingest.regions.policy import GenerationStats, MemoryPolicy, SealDecision, SealPolicy
from lancewal_ingest.regions.seal import reanchor_generation, seal_generation

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
        for partition, region in list(open_.items()):
            decision = self._decide(region, writer, early=region is early)
            if decision is not SealDecision.KEEP and self._since is None:
                self._since = self._now()
            try:
                match decision:
                    case SealDecision.KEEP:
                        pass
                    case SealDecision.SEAL:
                        self._seal(region, writer)
                    case SealDecision.REANCHOR:
                        reanchor_generation(self._context, writer, region.memtable)
                    case _:
                        assert_never(decision)
            except OwnershipLost as error:
                self._partitions.drop(partition, error)
            except ObjectTooLarge as error:
                self._partitions.put_off(partition, error)
            except Refresh as error:
                self._observer.failed("seal", error)
            except Retry as error:
                self._observer.failed("seal", error)
                return  # no use in asking the same store for each region: the loop must turn
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

    def _seal(self, region: OpenRegion, writer: LogWriter) -> None:
        memtable = region.memtable
        record, following = seal_generation(self._context, writer, memtable, hand_over=False)
        if following is None:
            raise AssertionError("sealing without a hand-over opens the next generation")
        region.memtable = MemTable(
            memtable.region, following.generation, following.first_sequence, memtable.position, self._now()
        )
        region.memtable.last_entry_at = memtable.last_entry_at
        self._flushes.add(memtable, record)
        self._observer.sealed(memtable.region, record)

    def _now(self) -> float:
        return self._context.clock.monotonic()
