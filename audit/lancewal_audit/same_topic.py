"""Whether Kafka's topic is still the one that the table's records came from: by its id."""

from __future__ import annotations

from lancewal_core.errors import TopicReplaced
from lancewal_core.table.contract import Contract
from lancewal_flusher.define.topic import TopicInspector, TopicState


def same_topic(inspector: TopicInspector, contract: Contract, advice: str) -> TopicState:
    """The topic as it is now: offsets mean what the contract's did, or ``TopicReplaced``; ``advice`` ends the error's text."""
    topic = inspector.describe(contract.topic)
    if topic.topic_id != contract.topic_id:
        raise TopicReplaced(
            f"topic {contract.topic} has id {topic.topic_id}, the table's contract says {contract.topic_id}: it was "
            f"deleted and recreated, and does not have the table's records. {advice}",
            topic=contract.topic,
        )
    return topic
