"""What a broker knows about a topic's compaction: whether there is any, and how long tombstones stay."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # imported there, not listed
    AdminClient,
    ConfigResource,
    ResourceType,
)

from lancewal_core.errors import InvalidInput
from lancewal_core.ids import Position
from lancewal_core.process.clock import Clock
from lancewal_ingest.retention.tombstones import Compaction
from lancewal_kafka.clients import ask_offsets, explained

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
