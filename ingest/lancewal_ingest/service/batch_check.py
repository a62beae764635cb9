"""Check whether a batch of the topic can unpack to more than Kafka's client has room for.

The client unpacks a batch whole.  Only for zstd does it stop at ``receive.message.max.bytes``.  For gzip, lz4 and
snappy the largest unpacked size follows from the topic's settings.

Guarantees
 1. With ``refuse`` nothing is consumed before the topic's settings are known to bound the size of every batch that
    came since these settings were made.  Afterwards they are checked every ``CONFIG_S``.  ``TopicUnsuitable`` ends the
    process if they do not bound it.
 2. With ``warn`` there is one warning for each state of the topic's settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lancewal_core.errors import ActionNeeded, TopicUnsuitable
from lancewal_core.process.clock import Clock
from lancewal_kafka.retention import CONFIG_S
from lancewal_kafka.unpacking import StoredBatches

UnboundedBatches = Literal["warn", "refuse"]


@dataclass(slots=True, eq=False)
class BatchCheck:
    """Check of one topic's settings.  ``ask`` asks the broker for them.  ``room``: most bytes of an unpacked batch for
    which Kafka's client has room.  ``warn`` is told of a problem."""

    topic: str
    ask: Callable[[], StoredBatches]
    room: int
    policy: UnboundedBatches
    clock: Clock
    warn: Callable[[str], None]
    _said: str = ""
    _again_at: float = float("-inf")

    def look(self) -> None:
        """Check the topic's settings if it is time.  Log a warning, or raise ``TopicUnsuitable`` under the policy
        ``refuse``.

        Raises ``KafkaUnavailable`` if the broker does not answer.  Under ``refuse``, also raises ``KafkaForbidden`` if
        a right is missing.
        """
        if self.clock.monotonic() < self._again_at:
            return
        problem = self._problem()
        self._again_at = self.clock.monotonic() + CONFIG_S
        if problem and self.policy == "refuse":
            raise TopicUnsuitable(f"{problem}; or set ingest.unbounded_batches: warn", topic=self.topic)
        if problem and problem != self._said:
            self.warn(problem)
        self._said = problem

    def _problem(self) -> str:
        try:
            stored = self.ask()
        except ActionNeeded as error:
            if self.policy == "refuse":
                raise
            return str(error)
        most = stored.unpacked_bytes_max(self.room)
        if most <= self.room:
            return ""
        return (
            f"topic {self.topic}: with compression.type={stored.compression} and max.message.bytes={stored.bytes_max} one "
            f"batch may unpack to {most} bytes; Kafka's client has room for {self.room} (three sixteenths of "
            "ingest.memory_bytes_max, or receive.message.max.bytes). If producers are not trusted, set the topic's "
            "compression.type to uncompressed or zstd"
        )
