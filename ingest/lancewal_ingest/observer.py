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
        """A region was opened.  ``seconds``: the time since it was assigned to this process, or since it had to be
        reopened.
        """

    def claimed(self, region: Region, outcome: Claim) -> None:
        """An attempt to claim a region had this outcome."""

    def appended(self, entry: Entry, ignored: Sequence[RejectedOffset]) -> None:
        """An entry is durable.  Its rejected offsets are dead letters, except those in ``ignored``, which the contract
        ignores.
        """

    def segment(self, stored: Durable, letters: int) -> None: ...

    def sealed(self, region: Region, record: GenerationRecord) -> None: ...

    def flushed(self, region: Region, snapshot: FlushedGeneration) -> None: ...

    def replayed(self, rows: int, seconds: float) -> None:
        """A flush read ``rows`` rows of a generation from the log, because they were not in memory.  The read took
        ``seconds``.
        """

    def fenced(self, fence: Fence) -> None: ...

    def ownership_lost(self, region: Region, error: LancewalError) -> None: ...

    def stopped(self, region: Region, error: LancewalError) -> None: ...

    def taken_up(self, contract_version: int) -> None:
        """This process follows the given contract version from the next segment on."""

    def column_added(self, name: str, type_: pa.DataType, contract_version: int) -> None:
        """This process has added a column to the table for a new field of records.  Called in any thread."""

    def column_refused(self, name: str, why: str) -> None:
        """A new field of records cannot become a column, although the contract says ``add``.  Called in any thread."""

    def other_names(self, uses: Mapping[OtherName, int]) -> None:
        """Durable rows use names that are not current column names.  ``uses``: how often each name is used."""

    def passed_over(self, records: Mapping[str, int]) -> None:
        """Some records were passed over: they are neither rows nor bad.  ``records``: the number of each kind."""

    def changed(self, source_ms: int) -> None:
        """Changes of a source database are durable.  ``source_ms``: when the source made one of the newest of them, in
        ms since 1970.
        """

    def failed(self, act: str, cause: object) -> None:
        """The operation ``act`` failed with a transient error, and will be retried."""

    def memory(self, used: int, paused: bool) -> None: ...

    def positions(self, durable: Positions, unflushed: int) -> None:
        """The durable positions of the open partitions, or the number of generations to be flushed, have changed."""
