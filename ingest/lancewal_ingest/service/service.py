"""The ingest service: build everything from settings, check, run the loop until told to stop, drain, leave.

Steps
 1. Answer probes: from now on ``/readyz`` says what is missing.  Read the contract; write our consumer group into it
    if it names none (``table.group``); check settings, table, topic, dead-letter topic and store; join the group.
    Nothing was consumed.  If a topic has more partitions than the contract: say how far the old ones are drained
    (``draining``).  A store or a broker that does not answer or lets nobody in is asked again in the process
    (``process.start``).
 2. Turn the worker's loop.  Beside it ask the broker about the topic (``topic_watch``), and look whether an operator
    wants it to consume (``control``): if not, the worker is held, and all else goes on.  Policies that were altered
    are taken up (``contract_watch``).  While Kafka is about to delete records of a partition that runs and that are
    not durable, open no further one: more work would only make the loss sure.  If the table was moved to another
    consumer group: leave the group, and go on at step 1, which waits (``table.group``).
 3. When told to stop: make durable what was consumed, hand over every region, flush; at most ``DRAIN_SHARE`` of
    ``ingest.drain_timeout_s``.  What is not done then is left to the next owner, which finds it in the log and in
    Kafka.
 4. Tell the group what is durable, and leave it, in what is left of that time.  Both are only good to have: without
    them lag tools show an older position, and Kafka learns by its session timeout that we are gone.

Whatever these steps wait for, ``ingest.drain_timeout_s`` after the signal the process has ended
(``process.stop_signals``).  A broker or a store that accepts connections and says nothing holds up no end.  That is a
crash, as safe as one at any other point.  What is durable is found in the log.  What is not is still in Kafka, for
the group is told no position that is not durable.  The next owner fences the log, so that nothing counts that is
still on its way.

An error ends the loop without step 3.  What is durable is handed over where that needs nothing else; the rest is the
next owner's.

Ready means: joined, and every partition that is ours is open; or none is ours, which is said.  A broker or a store
that is silent is named some seconds later, whatever the loop waits for; liveness does not fail for that
(``process.health``).
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
from lancewal_ingest.python_collector import look_at_new_objects_rarely
from lancewal_ingest.service.process import IngestProcess
from lancewal_ingest.service.worker import IngestWorker


@dataclass(frozen=True, slots=True)
class Running:
    """Parts of a service that it shows while it runs; for tests."""

    worker: IngestWorker
    port: int
    owner: OwnerId


def run_ingest(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.  Raises ``LancewalError`` where a person or a supervisor must act."""
    seconds = settings.ingest.drain_timeout_s
    events = IngestEvents(table=Address.of(settings).name)
    with end_in_time(seconds, lambda: events.end_forced(timeout_s=seconds)), stop_signals() as stopping:
        serve(settings, stopping)


def serve(settings: Settings, stopping: Callable[[], bool], began: Callable[[Running], None] = lambda _: None) -> bool:
    """Steps 1 to 4; True if everything was handed over and flushed in time, or nothing was begun."""
    settings.need("table.uri", "kafka.bootstrap_servers")
    use_one_heap()
    look_at_new_objects_rarely()
    with ExitStack() as stack:
        # Step 1
        process = IngestProcess(settings, stopping, stack)
        port = process.listen(stack)
        metrics = process.metrics(settings, port)
        while True:
            with ExitStack() as working:
                table = process.open_when_it_can(settings, metrics, working)
                if table is None:
                    return True
                process.add(table)
                began(Running(table.worker, port, process.owner))
                try:
                    # Steps 2 and 3; step 4 is with the stack
                    return process.work()
                except FormerGroup as error:
                    process.let_go(table, error)  # step 1 again, which waits
