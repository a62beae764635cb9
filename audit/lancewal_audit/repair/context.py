"""Context of repairs, opened from the settings.  Repairs use the same context as ingest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_ingest.context import IngestContext, open_context

RepairContext = IngestContext


@contextmanager
def opened(settings: Settings) -> Iterator[RepairContext]:
    """Open the table that the settings name.  Raises an error unless contract, table and settings agree."""
    settings.need("table.uri")
    with closing(ThreadTasks(workers=1)) as tasks:
        yield open_context(settings, tasks, SystemClock())
