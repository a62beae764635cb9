"""The committed ends of topics, as Kafka's brokers report them, as positions of a cut.

Guarantees
 1. All partitions of all topics are asked for at once.  Records of transactions that are open then lie after the
    positions, so the cut does not contain them.
 2. The topics are identified after the ends were read.  So the ends belong to the topic with the contract's topic id.
    Otherwise ``TopicReplaced`` is raised, or ``PartitionCountChanged`` if the topic has another number of partitions
    than the contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lancewal_core.errors import KafkaUnavailable, PartitionCountChanged, TopicReplaced, counted
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.contract import Contract
from lancewal_flusher.cuts.positions import ByTopic, PositionSource

if TYPE_CHECKING:
    from lancewal_kafka.topic import TopicFacts, TopicInspector


def kafka_ends(client: Mapping[str, str], tasks: Tasks) -> PositionSource:
    """Return a source that asks the brokers for the ends of topics.  ``client``: the properties of a Kafka client.

    Raises ``KafkaUnavailable``, ``KafkaForbidden``, ``TopicMissing``, and the errors of the module docstring.
    """
    from lancewal_kafka.topic import TopicInspector

    inspector = TopicInspector(client)
    return PositionSource(lambda contracts: ends_of(inspector, contracts, tasks))


def ends_of(inspector: TopicInspector, contracts: Sequence[Contract], tasks: Tasks) -> ByTopic:
    """Return the committed ends of the contracts' topics."""

    def identify() -> list[TopicFacts]:
        return tasks.map(lambda contract: inspector.identify(contract.topic), contracts)

    try:
        found = inspector.ends_of({contract.topic: range(contract.partitions) for contract in contracts})
    except KafkaUnavailable:
        identify()  # of a topic that does not exist, the client says here that nobody leads it
        raise
    facts = identify()
    for contract, topic in zip(contracts, facts, strict=True):
        if topic.topic_id != contract.topic_id:
            raise TopicReplaced(
                f"topic {contract.topic} has id {topic.topic_id}, the table's contract says {contract.topic_id}: it was "
                "deleted and recreated. Make the cut without its table, or follow docs/how-to/when-a-partition-stops.md",
                topic=contract.topic,
            )
        if topic.partitions != contract.partitions:
            raise PartitionCountChanged(
                f"topic {contract.topic} has {counted(topic.partitions, 'partition')}, the table's contract says "
                f"{contract.partitions}: records in the others would be missing. Make the cut after `lancewal table alter "
                f"--partitions {topic.partitions}`",
                topic=contract.topic,
            )
    return found
