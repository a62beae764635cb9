"""Interface through which the worker reports events.  Logs and metrics implement it, and tests listen through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import pyarrow as pa

from lancewal_core.errors import LancewalError
from lancewal_core.names.ids import Region
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.state import GenerationRecord
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.segment import Fence
from lancewal_core.wal.writer import Durable
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.kafka.source import Positions

Claim = Literal["won", "lost", "failed"]
"""Outcome of a try to claim a region; ``lost``: another owner claimed it first."""


class Observer(Protocol):
    """Listener for the worker's events.  Every call must return quickly and must not raise."""

    def opened(self, region: Region, record: GenerationRecord, seconds: float) -> None:
        """A region was opened, ``seconds`` after it was assigned to this process or had to be opened again."""

    def claimed(self, region: Region, outcome: Claim) -> None:
        """A try to claim a region had this outcome."""

    def appended(self, entry: Entry, ignored: Sequence[RejectedOffset]) -> None:
        """An entry is durable.  Of its rejected offsets the contract ignores ``ignored``; all others are dead letters."""

    def segment(self, stored: Durable, letters: int) -> None: ...

    def sealed(self, region: Region, record: GenerationRecord) -> None: ...

    def flushed(self, region: Region, snapshot: FlushedGeneration) -> None: ...

    def replayed(self, rows: int, seconds: float) -> None:
        """Rows of a generation were flushed that were not in memory: they were read from the log in ``seconds``."""

    def fenced(self, fence: Fence) -> None: ...

    def ownership_lost(self, region: Region, error: LancewalError) -> None: ...

    def stopped(self, region: Region, error: LancewalError) -> None: ...

    def taken_up(self, contract_version: int) -> None:
        """Records consumed from now on follow this version of the contract."""

    def column_added(self, name: str, type_: pa.DataType, contract_version: int) -> None:
        """This process has added a column to the table, for a field of records.  Called in any thread."""

    def column_refused(self, name: str, why: str) -> None:
        """A field of records does not become a column, although the contract says ``add``.  Called in any thread."""

    def other_names(self, uses: Mapping[OtherName, int]) -> None:
        """Rows that are durable use names other than present ones, each so many times."""

    def passed_over(self, records: Mapping[str, int]) -> None:
        """Records are durable as gaps of entries, neither rows nor faults.  ``records``: how many of each kind."""

    def changed(self, source_ms: int) -> None:
        """Changes of a source are durable.  The source made the newest of some of them at this time, in ms since 1970."""

    def failed(self, act: str, cause: object) -> None:
        """The operation ``act`` failed because of a passing fault, and is tried again."""

    def memory(self, used: int, paused: bool) -> None: ...

    def positions(self, durable: Positions, unflushed: int) -> None:
        """The durable positions of the open partitions, or the number of generations to be flushed, have changed."""
