"""The ingest service: build everything from settings, check, run the loop until told to stop, drain, leave.

Steps
 1. Answer probes: from now on ``/readyz`` says what is missing.  If ``table.uri`` is a name, ask the catalog for its
    address.  Read the contract, and write our consumer group into it if it names none (``kafka.consumer_group``).
    Check settings, table, topic, dead-letter topic and store, and join the group.  Nothing is consumed yet.  If the
    topic has more partitions than the contract, store how far the old ones are drained (``draining``).  If a catalog,
    store or broker does not answer or denies access, ask again in this process (``process.start``).  After this step
    nobody asks the catalog.
 2. Run the worker's loop.  Beside it ask the broker about the topic (``topic_watch``).  Check whether an operator has
    paused ingest (``control``): then consume nothing, and go on with everything else.  Follow newer contract versions
    (``contract_watch``).  While Kafka is about to delete records of a running partition that are not durable, open no
    further partition: more work would make the loss certain.  If the table was moved to another consumer group, leave
    the group and go on at step 1, which waits (``kafka.consumer_group``).
 3. When told to stop: make consumed records durable, hand over every region, and flush, within ``DRAIN_SHARE`` of
    ``ingest.drain_timeout_s``.  Unfinished work is left to the next owner, which finds it in the log and in Kafka.
 4. Commit the durable positions to the group, and leave the group, in the rest of that time.  Both are optional:
    without them lag tools show an older position, and Kafka notices by its session timeout that we are gone.

Whatever these steps wait for, the process has ended ``ingest.drain_timeout_s`` after the signal
(``process.stop_signals``).  So a broker or store that accepts connections and does not answer cannot delay the end.
Such an end is as safe as a crash at any other point.  Durable records are found in the log.  Other records are still in
Kafka, because only durable positions are committed.  The next owner fences the log, so a segment that arrives later
does not count.

An error ends the loop without step 3.  Regions are still handed over if nothing else must become durable first; others
are left to the next owner.

Ready means that the process has joined the group and has opened every partition that is ours.  A process without
partitions is ready too, and says so.  If a broker or store is silent, ``/readyz`` names it some seconds later, whatever
the loop waits for; liveness does not fail for that (``process.health``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from lancewal_core.errors import FormerGroup
from lancewal_core.names.ids import OwnerId
from lancewal_core.open import Address
from lancewal_core.process.stop_signals import end_in_time, stop_signals
from lancewal_core.settings.load import Settings
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.glibc_heap import use_one_heap
from lancewal_ingest.service.process import IngestProcess
from lancewal_ingest.service.python_collector import look_at_new_objects_rarely
from lancewal_ingest.service.table import IngestTable
from lancewal_ingest.service.worker import IngestWorker


@dataclass(frozen=True, slots=True)
class Running:
    """Parts of a running service that tests look at."""

    worker: IngestWorker
    port: int
    owner: OwnerId


def run_ingest(settings: Settings, found: Callable[[], Settings] | None = None) -> None:
    """Run the service until SIGTERM or SIGINT.  Raises ``LancewalError`` if a person or a supervisor must act.

    ``found`` returns the settings with the table's address.  If ``table.uri`` is a name, ``found`` asks the catalog for
    the address (step 1).  Without ``found``, ``settings`` must have the address.
    """
    settings.need("table.uri", "kafka.bootstrap_servers")
    seconds = settings.ingest.drain_timeout_s
    events = IngestEvents(table=Address.of(settings).name)
    with end_in_time(seconds, lambda: events.end_forced(timeout_s=seconds)), stop_signals() as stopping:
        serve(settings, stopping, found=found)


def serve(
    settings: Settings,
    stopping: Callable[[], bool],
    began: Callable[[Running], None] = lambda _: None,
    found: Callable[[], Settings] | None = None,
) -> bool:
    """Run the service until ``stopping`` returns True.  ``began`` is called whenever a table is open.  ``found``: see
    ``run_ingest``.

    Return True if everything was handed over and flushed in time, or if no table was opened.
    """
    use_one_heap()
    look_at_new_objects_rarely()
    with ExitStack() as stack:
        # Step 1
        process = IngestProcess(settings, stopping, stack)
        port = process.listen(stack)
        metrics = process.metrics(settings, port)
        found = found or (lambda: settings)
        while True:
            with ExitStack() as working:
                table = process.open_when_it_can(found, metrics, working)
                if table is None:
                    return True
                process.add(table)
                began(Running(table.worker, port, process.owner))
                try:
                    # Steps 2 and 3; step 4 is with the stack
                    return process.work()
                except FormerGroup as error:
                    process.let_go(table, error)  # step 1 again, which waits
                    found = _known(table)  # no catalog is asked again


def _known(table: IngestTable) -> Callable[[], Settings]:
    """Return a function that returns the settings of this table, with its address."""
    return lambda: table.settings
