"""Write bundles (``wal.bundle``) of the small segments that this process has made durable, in tasks beside the loop.

Guarantees
 1. A bundle copies consecutive segments of one log, with rows of equal columns, that the store has confirmed.  Each
    has the entity tag that came with the confirmation.  A segment whose entity tag is unknown (the reply was lost), or
    that is not small, is in no bundle, and ends the run of segments to copy.
 2. No append waits for a bundle.  One bundle is written at a time, in a task of its own.  One more run may wait for
    that task.  A run that ends while another one waits is dropped.  A bundle is put once: if the store refuses it or
    does not answer, it is dropped.
 3. The memory held is bounded, counted (``nbytes``), and released when memory is full (``drop``).

A run is written when it is full, or when it ends and copies at least ``LEAST``.  The last segments of a log that ends
are in no bundle.  A small segment's rows are therefore written once more at most, and a log of larger segments costs
nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import pyarrow as pa

from lancewal_core.errors import ObjectTooLarge, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Task, Tasks
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.wal.bundle import Copy, encode_bundle
from lancewal_core.wal.entry import Entry, kept_bytes
from lancewal_core.wal.segment import Segment
from lancewal_core.wal.writer import Durable, LogWriter

SMALL_BYTES = 64 << 10
"""Largest segment to copy.  Transferring a larger one takes longer than the round trip, even for a distant reader."""
LEAST = 8
"""Fewest segments in a bundle, or the ``segments`` of ``Bundling`` if that is lower.  With fewer segments, a distant
reader saves less than the request for the bundle costs."""
ROWS_BYTES_MAX = 8 << 20
"""Largest number of bytes of rows that a run keeps in memory.  A run of this size is full."""


@dataclass(slots=True)
class _Run:
    """Consecutive segments of one log, collected for one bundle."""

    schema: pa.Schema | None = None
    """Columns of the rows of all copies; None without copies."""
    copies: list[Copy] = field(default_factory=list)
    nbytes: int = 0

    def goes_on_with(self, writer: LogWriter, durable: Durable) -> bool:
        if not self.copies:
            return True
        last = self.copies[-1].segment
        follows = (last.log, last.sequence + 1) == (writer.log, durable.sequence)
        return follows and writer.schema.equals(self.schema)


class Bundling:
    """Writer of bundles.  Only the loop's thread may call.

    ``segments``: the largest number of segments in one bundle; 0 turns bundles off.
    """

    def __init__(self, store: ObjectStore, tasks: Tasks, segments: int) -> None:
        self._store = store
        self._tasks = tasks
        self._segments = segments
        self._run = _Run()
        self._due: _Run | None = None
        self._writing = _Run()
        self._task: Task[None] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of rows that bundles hold in memory, most of which MemTables hold too."""
        return self._run.nbytes + self._writing.nbytes + (0 if self._due is None else self._due.nbytes)

    def add(self, writer: LogWriter, durable: Durable, entries: Seq[Entry]) -> None:
        """Add the segment that has just become durable to the run.

        A segment that is large, or was stored without an entity tag, is left out and ends the run.  A segment that does
        not follow the run's newest one begins another run.
        """
        if not self._segments:
            return
        small = durable.etag is not None and durable.size <= SMALL_BYTES
        if not small or not self._run.goes_on_with(writer, durable):
            self._end_run()
        if durable.etag is None or not small:
            return
        segment = Segment(writer.log, durable.sequence, writer.owner, tuple(entries), durable.written_at_ms)
        self._run.schema = writer.schema
        self._run.copies.append(Copy(segment, durable.size, durable.etag))
        self._run.nbytes += kept_bytes(entries)
        if len(self._run.copies) >= self._segments or self._run.nbytes >= ROWS_BYTES_MAX:
            self._end_run()

    def advance(self) -> None:
        """Begin to write the collected run of segments, unless a bundle is being written."""
        if self._task is not None and self._task.done():
            task, self._task, self._writing = self._task, None, _Run()
            task.result()
        if self._task is None and self._due is not None:
            run, self._due = self._due, None
            self._writing = run
            self._task = self._tasks.start(lambda: self._put(run))

    def drop(self) -> None:
        """Release all collected segments, except those that are being written."""
        self._run, self._due = _Run(), None

    def _end_run(self) -> None:
        run, self._run = self._run, _Run()
        if self._due is None and len(run.copies) >= min(LEAST, self._segments):
            self._due = run

    def _put(self, run: _Run) -> None:
        assert run.schema is not None
        first, last = run.copies[0].segment, run.copies[-1].segment
        key = paths.wal_bundle(first.log, first.sequence, last.sequence)
        try:
            with point("bundle.put", object=key):
                self._store.put_if_absent(key, encode_bundle(run.copies, run.schema))
        except (StoreUnavailable, ObjectTooLarge):
            return
