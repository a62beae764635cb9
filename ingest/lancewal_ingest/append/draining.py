"""Ingest while the topic has more partitions than the contract: the contract's partitions are drained
(``lancewal_core.table.drain``).

Guarantees
 1. A record becomes a row if its key belongs to its partition by the contract's number of partitions.  The partition
    stops (``PartitionCountChanged``) right before the first record that belongs there by the topic's number only, and
    at its end that the drain records (``Drain.to``).  A record that belongs there by neither number is misrouted.
 2. Partitions that the contract does not name are not opened.
 3. Once the contract is altered, the process ends with ``PartitionCountChanged``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Protocol

import numpy as np

from lancewal_core.errors import PartitionCountChanged, Refresh, Retry
from lancewal_core.names.ids import Position, Region
from lancewal_core.table.contract import Contract
from lancewal_core.table.drain import Drain, begin, check_open, note_new, read_drain, takes_no_more
from lancewal_ingest.append.routing import Partitions, Routing
from lancewal_ingest.append.stops import Stop
from lancewal_ingest.context import IngestContext
from lancewal_ingest.decode.outcomes import Decoded
from lancewal_ingest.kafka.source import DescribedTopics, Positions
from lancewal_kafka.records import Records

NoteNew = Callable[[Positions], None]


class EndingTopics(DescribedTopics, Protocol):
    """Topics that also say where their partitions end."""

    def ends(self, regions: Collection[Region]) -> dict[Region, Position]: ...


def drain_of(context: IngestContext, topics: EndingTopics) -> Drain | None:
    """Return the drain of the contract's partitions, with Kafka's present ends recorded (``table.drain``, step 1).
    None if the topic has another id, or no more partitions than the contract.

    Raises ``PartitionCountChanged`` with ``table.partitioner: none``, and if the drain is closed.
    """
    contract = context.contract
    facts = topics.facts(contract.topic)
    if facts.topic_id != contract.topic_id or facts.partitions <= contract.partitions:
        return None
    if contract.partitioner == "none":
        raise PartitionCountChanged(
            takes_no_more(contract.topic, facts.partitions, contract.partitions), topic=contract.topic
        )
    ends = topics.ends(contract.regions)  # asked after the number: what was sent without knowing it lies below
    return begin(
        context.store, context.clock, context.new_id, contract, facts.partitions,
        [ends[region] for region in contract.regions],
    )  # fmt: skip


def check_not_altered(context: IngestContext) -> None:
    """Raise ``PartitionCountChanged`` if the contract's number of partitions has changed since the drain began, or
    changes now.

    An unavailable store raises no error here, because other requests report it.
    """
    if context.drain is None:
        return
    with suppress(Retry, Refresh):
        check_open(context.contract, read_drain(context.store, context.contract) or context.drain)


def noting(context: IngestContext) -> NoteNew | None:
    """Return a function that stores where partitions end: the offset of the first record that belongs there only by the
    topic's number of partitions.  Ingest calls it before it stops the partition there.  None if no drain is under way.
    """
    if context.drain is None:
        return None
    note = partial(note_new, context.store, context.clock, context.new_id, context.contract, context.drain)
    return lambda new_from: note({region.partition: at for region, at in new_from.items()})


class DrainLimit:
    """Finder of the position at which a partition of the contract must stop during a drain."""

    def __init__(self, contract: Contract, drain: Drain) -> None:
        self._contract = contract
        self._drain = drain
        self._new = Routing(contract.model_copy(update={"partitions": drain.partitions}))

    def stop(
        self, region: Region, next_: Position, records: Records, decoded: Decoded, belongs: Partitions
    ) -> Stop | None:
        """Return where the partition must stop among the records below ``next_``; None if all of them belong to it.

        ``belongs``: for each record of ``decoded.is_placed``, the partition by the contract's number of partitions.
        """
        partition = region.partition
        to = Position(self._drain.to[partition])
        lies = np.full(len(records), partition, np.int32)
        moved = np.flatnonzero((belongs != partition) & (self._new.partitions(records, decoded, lies) == partition))
        if len(moved):
            offset = Position(records.offsets[int(np.flatnonzero(decoded.is_placed)[moved[0]])])
            if offset <= to:
                error = self._error(region, offset, "the record there is routed by the new number")
                return Stop(region, offset, error, new_from=offset)
        if next_ > to:
            return Stop(region, to, self._error(region, to, "its end in Kafka when ingest was started"))
        return None

    def _error(self, region: Region, at: Position, why: str) -> PartitionCountChanged:
        contract, more = self._contract, self._drain.partitions
        return PartitionCountChanged(
            f"topic {contract.topic} has {more} partitions, the table's contract says {contract.partitions}: partition "
            f"{region.partition} is drained up to position {at}: {why}. Once producers are stopped and all is merged: "
            f"`lancewal table alter --partitions {more}`, which says what is left to do",
            **region.place,
        )
