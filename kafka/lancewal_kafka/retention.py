"""What a broker knows about a topic's retention.  Every question may be asked from any thread.

``KafkaUnavailable`` when nobody answers in time, ``InvalidInput`` where the broker does not allow the question
(DescribeConfigs on the topic).
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # imported there, not listed
    AdminClient,
    ConfigResource,
    ResourceType,
)

from lancewal_core.errors import InvalidInput
from lancewal_core.ids import Position
from lancewal_core.process.clock import Clock
from lancewal_kafka.clients import (
    REQUEST_TIMEOUT_S,
    ask_offsets,
    explained,
    lone_consumer_properties,
    shared_properties,
)

_PEEK_QUEUE_BYTES = 1 << 20
_PEEK_WAIT_S = 0.1
_PEEK_WAITS = 30
"""Times that a peek waits in vain before it gives up: behind the position there may be nothing but markers."""


class KafkaRetention:
    """Questions about one topic.  ``client`` holds ``bootstrap.servers`` and the pass-through properties."""

    def __init__(self, client: Mapping[str, str], topic: str, group: str) -> None:
        self._topic = topic
        self._admin = AdminClient({"log_level": 2, **shared_properties(client)})
        self._peek: dict[str, Any] = {
            **lone_consumer_properties(client, group, _PEEK_QUEUE_BYTES),
            # One batch of each partition is enough, however small; the broker sends at least a whole one.
            "fetch.message.max.bytes": 1,
            "queued.min.messages": 1,
        }

    def retention_s(self) -> float:
        """Seconds that the topic keeps a record at least, by its age; infinite where age deletes nothing."""
        config = self._config()
        retention_ms = int(config["retention.ms"])
        return math.inf if "delete" not in _policies(config) or retention_ms < 0 else retention_ms / 1000

    def tombstones_s(self) -> float:
        """Seconds that a compacted topic keeps a delete at least; infinite for a topic that is not compacted."""
        config = self._config()
        return int(config["delete.retention.ms"]) / 1000 if "compact" in _policies(config) else math.inf

    def _config(self) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        try:
            asked = self._admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
            return {name: entry.value for name, entry in asked.result(REQUEST_TIMEOUT_S + 1).items()}
        except (KafkaException, TimeoutError) as error:
            raise explained(error, f"reading the retention of topic {self._topic}", self._topic) from error

    def lows(self, partitions: Sequence[int]) -> dict[int, Position]:
        """The first offset of each partition that Kafka still has."""
        return ask_offsets(self._admin, self._topic, partitions, "earliest", REQUEST_TIMEOUT_S)

    def timestamps(self, positions: Mapping[int, Position]) -> dict[int, int]:
        """Milliseconds since 1970 of the first committed record at or behind each position.

        By a consumer of its own, which joins no group.  Partitions without an answer are left out.
        """
        if not positions:
            return {}
        found: dict[int, int] = {}
        consumer = Consumer(self._peek, logger=logging.getLogger("lancewal.kafka"))
        with contextlib.closing(consumer):
            try:
                consumer.assign([TopicPartition(self._topic, p, at) for p, at in positions.items()])
                waits = 0
                while len(found) < len(positions) and waits < _PEEK_WAITS:
                    message = consumer.poll(_PEEK_WAIT_S)
                    if message is None or message.error() is not None:
                        waits += 1
                        continue
                    partition, (_, timestamp_ms) = message.partition(), message.timestamp()
                    if partition is None or partition in found:
                        continue
                    found[partition] = timestamp_ms
                    consumer.pause([TopicPartition(self._topic, partition)])
            except KafkaException as error:
                raise explained(error, f"looking at records of topic {self._topic}", self._topic) from error
        return {partition: at for partition, at in found.items() if at >= 0}


def _policies(config: Mapping[str, str]) -> list[str]:
    return [policy.strip() for policy in config["cleanup.policy"].split(",")]


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a broker says of a compacted topic."""

    tombstones_s: float
    """How long it keeps a tombstone at least (``delete.retention.ms``)."""
    recent: Position
    """The first record that is not older than that; the end of the partition if there is none."""
    end: Position
    """The end of the partition."""

    def old_beyond(self, position: Position) -> Position:
        """The end of what may be too old from ``position`` on: at or below it where nothing is; see condition 2."""
        return self.end if self.recent < position else self.recent


CONFIG_S = 60.0
"""A topic's configuration changes rarely, and by people."""


class KafkaCompaction:
    """Questions about one topic.  A user who may not read its configuration is told so, and goes on as without compaction."""

    def __init__(
        self, admin: AdminClient, topic: str, clock: Clock, report: Callable[[str, object], None], timeout_s: float
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._clock = clock
        self._report = report
        self._timeout_s = timeout_s
        self._tombstones_s: float | None = None
        self._again_at = float("-inf")

    def of(self, partition: int, high: Position) -> Compaction | None:
        """None for a topic that is not compacted; ``high`` is the partition's end.  ``KafkaUnavailable``."""
        if self._clock.monotonic() >= self._again_at:
            self._tombstones_s = self._ask()
            self._again_at = self._clock.monotonic() + CONFIG_S
        if self._tombstones_s is None:
            return None
        since_ms = self._clock.now_ms() - int(self._tombstones_s * 1000)
        recent = ask_offsets(self._admin, self._topic, [partition], since_ms, self._timeout_s)[partition]
        return Compaction(self._tombstones_s, recent if recent >= 0 else high, high)

    def _ask(self) -> float | None:
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        try:
            asked = self._admin.describe_configs([resource], request_timeout=self._timeout_s)[resource]
            config = asked.result(self._timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            explanation = explained(error, f"reading the clean-up policy of topic {self._topic}", self._topic)
            if not isinstance(explanation, InvalidInput):
                raise explanation from error
            self._report("compaction", explanation)
            return None
        policies = [policy.strip() for policy in config["cleanup.policy"].value.split(",")]
        return int(config["delete.retention.ms"].value) / 1000 if "compact" in policies else None
