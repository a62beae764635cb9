"""What repairs work on, opened from the settings: the same parts that ingest's protocols have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lancewal_core.errors import InvalidSettings
from lancewal_core.ids import Region
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_ingest.context import IngestContext, open_context

RepairContext = IngestContext


@contextmanager
def opened(settings: Settings) -> Iterator[RepairContext]:
    """The table that the settings name; contract, table and settings agree."""
    settings.need("table.uri")
    with ExitStack() as stack:
        tasks = ThreadTasks(workers=1)
        stack.callback(tasks.close)
        yield open_context(settings, tasks, SystemClock())


def region_of(context: RepairContext, topic: str, partition: int) -> Region:
    """The region that an operator has named; ``InvalidSettings`` where the table has none such."""
    contract = context.contract
    if topic != contract.topic or not 0 <= partition < contract.partitions:
        raise InvalidSettings(
            f"the table has topic {contract.topic} with partitions 0 to {contract.partitions - 1}, not {topic} "
            f"partition {partition}"
        )
    return contract.regions[partition]
