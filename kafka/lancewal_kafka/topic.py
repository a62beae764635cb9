"""Questions to the Kafka cluster about one topic: its partitions, its id, its offsets, its configuration.

Every question raises ``KafkaUnavailable`` with the brokers' address when nobody answers in time, ``TopicMissing`` for a topic
that is not there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # imported there, not listed
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from lancewal_core.errors import KafkaUnavailable, SettingsError, TopicMissing, TopicReplaced, TopicUnsuitable
from lancewal_core.ids import Position, topic_id
from lancewal_core.paths import check_topic
from lancewal_core.process.clock import ms_since_1970
from lancewal_core.settings.sections import KafkaSettings
from lancewal_core.table.contract import Contract
from lancewal_kafka.clients import REQUEST_TIMEOUT_S, error_of, explained, shared_properties

T = TypeVar("T")


_NO_LEADER = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)


_ELECTION_PAUSE_S = 0.1


EARLIEST = -1
"""In a contract's ``start``: whatever position is the first that Kafka has when the partition is first claimed."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """The topic as the brokers describe it now."""

    topic: str
    topic_id: str
    partitions: int
    compacted: bool
    compression: str = "uncompressed"
    """Its effective ``compression.type``."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group: the name that its client has, and where it runs."""

    client_id: str
    host: str


class TopicInspector:
    """Asks the brokers that ``kafka`` names.  ``timeout_s`` bounds each question."""

    def __init__(self, kafka: KafkaSettings, timeout_s: float = 10.0) -> None:
        self._servers = kafka.bootstrap_servers
        self._timeout_s = timeout_s
        self._last_error = ""
        try:
            # Log level 2: librdkafka would write lines of its own between those of the command.
            config: dict[str, Any] = {"log_level": "2", **kafka.client(), "error_cb": self._noted}
            self._admin = AdminClient(config)
        except KafkaException as error:
            raise SettingsError(f"kafka.librdkafka: not accepted by librdkafka: {error.args[0].str()}") from error

    def describe(self, topic: str) -> TopicState:
        """Id, number of partitions and clean-up policy."""
        check_topic(topic)
        described = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)
        found = self._answer(described[topic], topic)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        config = self._answer(
            self._admin.describe_configs([resource], request_timeout=self._timeout_s)[resource], topic
        )
        policies = [policy.strip() for policy in config["cleanup.policy"].value.split(",")]
        compression = config["compression.type"].value
        return TopicState(
            topic, topic_id(str(found.topic_id)), len(found.partitions), "compact" in policies, compression
        )

    def starts(self, topic: TopicState, start: Literal["earliest", "latest"] | datetime) -> tuple[int, ...]:
        """The start of each partition: ``EARLIEST``, or a position.

        ``latest`` is the position behind all committed records, so an open transaction is taken whole; a time is the
        position of the first record at or after it, ``latest`` where there is none.
        """
        if start == "earliest":
            return (EARLIEST,) * topic.partitions
        latest = self.ends(topic.topic, range(topic.partitions))
        if start == "latest":
            return tuple(latest[p] for p in range(topic.partitions))
        assert isinstance(start, datetime)
        at = self.since(topic.topic, range(topic.partitions), max(0, ms_since_1970(start)))  # -1 would mean the end
        return tuple(latest[p] if (first := at[p]) is None else first for p in range(topic.partitions))

    def begins(self, topic: str, partitions: Collection[int]) -> Mapping[int, Position]:
        """The first offset of each partition that Kafka still has."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # no annotations there
        return {p: Position(offset) for p, offset in self._offsets(topic, partitions, earliest).items()}

    def since(
        self, topic: str, partitions: Collection[int], time_ms: int, *, committed: bool = True
    ) -> Mapping[int, Position | None]:
        """The first record of each partition that is not older than ``time_ms``; None where there is none.  Not only
        ``committed``: those of open transactions count."""
        found = self._offsets(topic, partitions, OffsetSpec.for_timestamp(time_ms), committed=committed)
        return {p: Position(offset) if offset >= 0 else None for p, offset in found.items()}

    def ends(self, topic: str, partitions: Collection[int], *, committed: bool = True) -> Mapping[int, Position]:
        """The position behind the last committed record of each partition; not only ``committed``: behind the last of all."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call] # no annotations there
        offsets = self._offsets(topic, partitions, latest, committed=committed)
        return {partition: Position(offset) for partition, offset in offsets.items()}

    def members(self, group: str) -> tuple[GroupMember, ...]:
        """Who is in the consumer group; nobody in one that does not exist.

        ``KafkaUnavailable`` with what the broker says, also where it does not let this user see the group.
        """
        future = self._admin.describe_consumer_groups([group], request_timeout=self._timeout_s)[group]
        try:
            described = future.result(timeout=self._timeout_s + 5)
        except FutureTimeoutError as error:
            raise self._unavailable("no answer") from error
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return ()
            raise self._unavailable(error.args[0].str()) from error
        return tuple(GroupMember(member.client_id, member.host) for member in described.members)

    def _offsets(
        self, topic: str, partitions: Collection[int], spec: OffsetSpec, *, committed: bool = True
    ) -> dict[int, int]:
        until = time.monotonic() + self._timeout_s
        while True:
            futures = self._admin.list_offsets(
                {TopicPartition(topic, partition): spec for partition in partitions},
                isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self._timeout_s,
            )
            if time.monotonic() > until or not any(map(self._leaderless, futures.values())):
                return {at.partition: int(self._answer(future, topic).offset) for at, future in futures.items()}
            time.sleep(_ELECTION_PAUSE_S)

    def _leaderless(self, future: Future[Any]) -> bool:
        """Right behind a topic's creation, or while a broker goes: Kafka's client does not ask again by itself."""
        try:
            future.result(timeout=self._timeout_s + 5)
        except KafkaException as error:
            return error.args[0].code() in _NO_LEADER
        except FutureTimeoutError:
            pass
        return False

    def _answer(self, future: Future[T], topic: str) -> T:
        try:
            return future.result(timeout=self._timeout_s + 5)
        except FutureTimeoutError as error:
            raise self._unavailable("no answer") from error
        except KafkaException as error:
            raise self._refused(error.args[0], topic) from error

    def _refused(self, error: KafkaError, topic: str) -> Exception:
        match error.code():
            case KafkaError.UNKNOWN_TOPIC_OR_PART | KafkaError._UNKNOWN_TOPIC | KafkaError._UNKNOWN_PARTITION:
                return TopicMissing(
                    f"topic {topic!r} does not exist at {self._servers}: create it (its number of partitions is the "
                    "table's number of regions), or correct kafka.topic",
                    topic=topic,
                )
            case KafkaError.TOPIC_AUTHORIZATION_FAILED | KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return TopicUnsuitable(
                    f"topic {topic!r} at {self._servers}: {error.str()}; allow this user Describe, DescribeConfigs and "
                    "Read on the topic",
                    topic=topic,
                )
        return self._unavailable(error.str())

    def _unavailable(self, reason: str) -> KafkaUnavailable:
        self._admin.poll(0)  # delivers what librdkafka noted meanwhile
        last = f" ({self._last_error})" if self._last_error else ""
        return KafkaUnavailable(
            f"Kafka at {self._servers} does not answer: {reason}{last}; check kafka.bootstrap_servers, "
            "kafka.librdkafka and the network",
            servers=self._servers,
        )

    def _noted(self, error: Any) -> None:
        self._last_error = error.str()


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


def group_members(client: Mapping[str, str], topic: str, group: str) -> int:
    """Members of the group; ``KafkaUnavailable`` if nobody answers, ``InvalidInput`` where the question is not allowed."""
    admin = AdminClient({"log_level": 2, **shared_properties(client)})
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S)[group]
        return len(asked.result(REQUEST_TIMEOUT_S + 1).members)
    except (KafkaException, TimeoutError) as error:
        found = error_of(error)
        if found is not None and found.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return 0
        raise explained(error, f"describing the consumer group {group}", topic) from error
