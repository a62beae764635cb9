"""An observer of ingest that reports nothing; tests override what they watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lancewal_core.errors import LancewalError
from lancewal_core.names.ids import Region
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.state import GenerationRecord
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.segment import Fence
from lancewal_core.wal.writer import Durable
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.kafka.source import Positions
from lancewal_ingest.observer import Claim


class SilentObserver:
    """Reports nothing."""

    def opened(self, region: Region, record: GenerationRecord, seconds: float) -> None: ...

    def claimed(self, region: Region, outcome: Claim) -> None: ...

    def appended(self, entry: Entry, ignored: Sequence[RejectedOffset]) -> None: ...

    def segment(self, stored: Durable, letters: int) -> None: ...

    def sealed(self, region: Region, record: GenerationRecord) -> None: ...

    def flushed(self, region: Region, snapshot: FlushedGeneration) -> None: ...

    def replayed(self, rows: int, seconds: float) -> None: ...

    def fenced(self, fence: Fence) -> None: ...

    def ownership_lost(self, region: Region, error: LancewalError) -> None: ...

    def stopped(self, region: Region, error: LancewalError) -> None: ...

    def taken_up(self, contract_version: int) -> None: ...

    def other_names(self, uses: Mapping[OtherName, int]) -> None: ...

    def failed(self, act: str, cause: object) -> None: ...

    def memory(self, used: int, paused: bool) -> None: ...

    def positions(self, durable: Positions, unflushed: int) -> None: ...
