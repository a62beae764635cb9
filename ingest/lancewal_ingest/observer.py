"""Reports of the worker: logs and metrics hang on here, tests listen here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from lancewal_core.errors import LancewalError
from lancewal_core.names.ids import Region
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.state import GenerationRecord
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.segment import Fence
from lancewal_core.wal.writer import Durable
from lancewal_ingest.kafka.source import Positions

Claim = Literal["won", "lost", "failed"]
"""``lost``: another owner came first."""


class Observer(Protocol):
    """Every call must return quickly and must not raise."""

    def opened(self, region: Region, record: GenerationRecord, seconds: float) -> None:
        """``seconds`` after it was ours, or had to be opened again."""

    def claimed(self, region: Region, outcome: Claim) -> None:
        """Hear what became of a try to take a region over."""

    def appended(self, entry: Entry, ignored: Sequence[RejectedOffset]) -> None:
        """``ignored``: what of the entry's list the contract ignores; the rest are dead letters."""

    def segment(self, stored: Durable, letters: int) -> None: ...

    def sealed(self, region: Region, record: GenerationRecord) -> None: ...

    def flushed(self, region: Region, snapshot: FlushedGeneration) -> None: ...

    def replayed(self, rows: int, seconds: float) -> None:
        """Rows of a generation were not in memory: they were read from the log to be flushed."""

    def fenced(self, fence: Fence) -> None: ...

    def ownership_lost(self, region: Region, error: LancewalError) -> None: ...

    def stopped(self, region: Region, error: LancewalError) -> None: ...

    def failed(self, act: str, cause: object) -> None:
        """A passing fault; the act is tried again."""

    def memory(self, used: int, paused: bool) -> None: ...

    def positions(self, durable: Positions, unflushed: int) -> None:
        """Hear the positions of the open partitions, and how many generations wait to be flushed, whenever one of these
        is another."""
