"""Questions to the Kafka cluster about topics: their partitions, ids, offsets, configuration and consumer groups.

Guarantees
 1. Any thread may ask them.  Errors are those of ``errors``: ``KafkaUnavailable`` if nobody answers in time,
    ``TopicMissing`` for a topic that does not exist, ``KafkaForbidden`` if this user may not ask, ``KafkaRefused`` if
    broker and client do not trust each other.
 2. A partition may have no leader, right after its topic's creation or while a broker stops.  Questions for offsets
    are then repeated until ``election_s`` (by default ``timeout_s``) have passed, since Kafka's client does not
    repeat them.  With 0 the answer is an error at once: for a loop that asks again anyway, and must not wait for one
    partition.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # imported there, not listed
    AclOperation,
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from lancewal_core.errors import KafkaUnavailable, LancewalError, TopicReplaced
from lancewal_core.names.ids import Position, topic_id
from lancewal_core.names.paths import check_topic
from lancewal_core.process.clock import ms_since_1970
from lancewal_core.process.progress import step
from lancewal_core.table.contract import Contract
from lancewal_kafka.clients import REQUEST_TIMEOUT_S, kafka_at
from lancewal_kafka.errors import code_of, explained, forbidden, leaderless, not_accepted, text_of
from lancewal_kafka.unpacking import StoredBatches

T = TypeVar("T")

_ELECTION_PAUSE_S = 0.1
_LEARN_S = 2.0
_GRACE_S = 1.0
"""Seconds to wait beyond the client's own time limit, so that the client itself can say that nobody answered."""

_FOR_OFFSETS = "asking for offsets of"

EARLIEST = -1
"""Value in a contract's ``start``: the partition begins at the first position that Kafka has when the partition is
first claimed."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Id and partitions of the topic, as the brokers describe it now."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The topic's configuration for keeping and storing records."""

    compacted: bool
    retention_s: float
    """Least seconds for which the topic keeps a record; infinite if no record is deleted by age."""
    tombstones_s: float
    """Least seconds for which a tombstone is kept; infinite for a topic that is not compacted."""
    stored: StoredBatches


@dataclass(frozen=True, slots=True)
class TopicState:
    """Id, partitions and configuration of the topic, as the brokers describe it now."""

    topic: str
    topic_id: str
    partitions: int
    compacted: bool
    stored: StoredBatches = field(default=StoredBatches("uncompressed", 1 << 20))


@dataclass(frozen=True, slots=True)
class GroupMember:
    """Member of a consumer group: its client id, and the host on which it runs."""

    client_id: str
    host: str


class TopicInspector:
    """Client that asks the brokers about topics.  ``client`` has ``bootstrap.servers`` and ``kafka.options``.
    ``timeout_s`` limits each request.

    Raises ``InvalidSettings`` if librdkafka does not accept a property.  All properties are passed to it, so that it
    finds unknown ones.  librdkafka ignores properties that only other kinds of clients use.
    """

    def __init__(
        self, client: Mapping[str, str], timeout_s: float = REQUEST_TIMEOUT_S, *, election_s: float | None = None
    ) -> None:
        self._servers = client.get("bootstrap.servers", "")
        self._timeout_s = timeout_s
        self._election_s = timeout_s if election_s is None else election_s
        self._heard = ""
        try:
            # Log level 2: librdkafka would write lines of its own between those of the command.
            config: dict[str, Any] = {"log_level": "2", **client, "error_cb": self._hear}
            self._admin = AdminClient(config)
        except (KafkaException, ValueError, TypeError) as error:
            raise not_accepted(error) from error

    def identify(self, topic: str) -> TopicFacts:
        """Return the topic's id and number of partitions."""
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)[topic]
        try:
            found = self._answer(asked, "describing", topic)
        except KafkaUnavailable:
            self._learn_controller()
            raise
        return TopicFacts(topic_id(str(found.topic_id)), len(found.partitions))  # Uuid's == compares identity

    def names(self) -> list[str]:
        """Return the names of the topics that this user may see, sorted."""
        try:
            return sorted(self._admin.list_topics(timeout=self._timeout_s).topics)
        except KafkaException as error:
            raise explained(error, "listing topics", "*", self._servers, self._heard) from error

    def check_right(self, topic: str, operation: AclOperation) -> None:
        """Raise ``KafkaForbidden`` if the brokers say that this user may not do ``operation`` on the topic."""
        asked = self._admin.describe_topics(
            TopicCollection([topic]), request_timeout=self._timeout_s, include_authorized_operations=True
        )[topic]
        _check_right(self._answer(asked, "asking what is allowed on", topic), operation, f"topic {topic}", topic)

    def check_right_on_group(self, topic: str, group: str, operation: AclOperation) -> None:
        """Raise ``KafkaForbidden`` if the brokers say that this user may not do ``operation`` on the consumer group.

        If the group does not exist yet, only the right to describe it is checked.  ``topic`` is only named in errors.
        """
        what = f"consumer group {group}"
        described = self._described_group(topic, group, f"asking what is allowed on {what} of", rights=True)
        if described is not None:
            _check_right(described, operation, what, topic)

    def configuration(self, topic: str) -> TopicConfig:
        """Return the topic's configuration, defaults included."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = self._admin.describe_configs([resource], request_timeout=self._timeout_s)[resource]
        config = self._answer(asked, "reading the configuration of", topic)
        policies = [policy.strip() for policy in config["cleanup.policy"].value.split(",")]
        retention_ms, compacted = int(config["retention.ms"].value), "compact" in policies
        return TopicConfig(
            compacted,
            retention_ms / 1000 if "delete" in policies and retention_ms >= 0 else math.inf,
            int(config["delete.retention.ms"].value) / 1000 if compacted else math.inf,
            StoredBatches(config["compression.type"].value, int(config["max.message.bytes"].value)),
        )

    def describe(self, topic: str) -> TopicState:
        """Return the topic's id, number of partitions, clean-up policy and compression."""
        check_topic(topic)
        facts, config = self.identify(topic), self.configuration(topic)
        return TopicState(topic, facts.topic_id, facts.partitions, config.compacted, config.stored)

    def starts(self, topic: TopicState, start: Literal["earliest", "latest"] | datetime) -> tuple[int, ...]:
        """Return the start of each partition: ``EARLIEST``, or a position.

        ``latest`` is the position before the first open transaction, so that this transaction is read whole; without
        one the end.  A time gives the position of the first record at or after the time, and ``latest`` if there is
        none.
        """
        if start == "earliest":
            return (EARLIEST,) * topic.partitions
        latest = self.ends(topic.topic, range(topic.partitions))
        if start == "latest":
            return tuple(latest[p] for p in range(topic.partitions))
        assert isinstance(start, datetime)
        at = self.since(topic.topic, range(topic.partitions), max(0, ms_since_1970(start)))  # -1 would mean the end
        return tuple(latest[p] if (first := at[p]) is None else first for p in range(topic.partitions))

    def begins(self, topic: str, partitions: Collection[int]) -> dict[int, Position]:
        """Return the first offset that Kafka still has, for each partition."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # no annotations there
        return self._offsets(topic, partitions, earliest)

    def since(
        self, topic: str, partitions: Collection[int], time_ms: int, *, committed: bool = True
    ) -> dict[int, Position | None]:
        """Return the position of each partition's first record that is not older than ``time_ms``; None if there is
        none.

        With ``committed`` False, records of open transactions count too.
        """
        found = self._offsets(topic, partitions, OffsetSpec.for_timestamp(time_ms), committed=committed)
        return {p: at if at >= 0 else None for p, at in found.items()}

    def ends(self, topic: str, partitions: Collection[int], *, committed: bool = True) -> dict[int, Position]:
        """Return the end of each partition: the position before its first open transaction, or else after its last
        record.

        With ``committed`` False, open transactions count too: the position after the last record.
        """
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call] # no annotations there
        return self._offsets(topic, partitions, latest, committed=committed)

    def ends_of(self, topics: Mapping[str, Collection[int]]) -> dict[str, dict[int, Position]]:
        """Return the ``ends`` of several topics' partitions, all asked for at once.  Records of open transactions do
        not count."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call] # no annotations there
        return self._offsets_of(topics, latest, committed=True)

    def limits(self, topic: str, partitions: Collection[int]) -> dict[int, tuple[Position, Position] | LancewalError]:
        """Return the first offset and the end (``ends``) of each partition, both asked for at the same time.

        A partition without an answer or without a leader has an error as its value.
        """
        if not partitions:
            return {}
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call] # no annotations there
        asked = [self._ask_offsets(topic, partitions, spec, committed=True) for spec in (earliest, latest)]
        found: dict[int, tuple[Position, Position] | LancewalError] = {}
        for partition in partitions:
            try:
                low, high = (self._answer(one[partition], _FOR_OFFSETS, topic) for one in asked)
                found[partition] = Position(int(low.offset)), Position(int(high.offset))
            except LancewalError as error:
                found[partition] = error
        return found

    def members(self, topic: str, group: str) -> tuple[GroupMember, ...]:
        """Return all members of the consumer group ``group``; none if the group does not exist.  ``topic`` is only
        named in errors."""
        described = self._described_group(topic, group, f"describing the consumer group {group} of")
        members = () if described is None else described.members
        return tuple(GroupMember(member.client_id, member.host) for member in members)

    def _described_group(self, topic: str, group: str, act: str, *, rights: bool = False) -> Any:
        """Return the brokers' description of a consumer group; None if there is none.  ``rights`` adds this user's rights."""
        asked = self._admin.describe_consumer_groups(
            [group], request_timeout=self._timeout_s, include_authorized_operations=rights
        )[group]
        try:
            return self._answer(asked, act, topic)
        except LancewalError as error:
            if code_of(error.__cause__) == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            raise

    def _offsets(
        self, topic: str, partitions: Collection[int], spec: OffsetSpec, *, committed: bool = True
    ) -> dict[int, Position]:
        return self._offsets_of({topic: partitions}, spec, committed=committed)[topic]

    def _offsets_of(
        self, topics: Mapping[str, Collection[int]], spec: OffsetSpec, *, committed: bool
    ) -> dict[str, dict[int, Position]]:
        """Return one offset of each partition, all asked for at once.  Partitions without a leader are asked for
        again (guarantee 2)."""
        until = time.monotonic() + self._election_s
        while True:
            asked = {t: self._ask_offsets(t, partitions, spec, committed=committed) for t, partitions in topics.items()}
            with step(f"{_FOR_OFFSETS} topic {', '.join(topics)}", asked=kafka_at(self._servers)):
                electing = time.monotonic() < until and any(
                    self._electing(o) for of in asked.values() for o in of.values()
                )
            if electing:
                time.sleep(_ELECTION_PAUSE_S)
                continue
            return {
                topic: {p: Position(int(self._answer(found, _FOR_OFFSETS, topic).offset)) for p, found in of.items()}
                for topic, of in asked.items()
            }

    def _ask_offsets(
        self, topic: str, partitions: Collection[int], spec: OffsetSpec, *, committed: bool
    ) -> dict[int, Future[Any]]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        of = {TopicPartition(topic, partition): spec for partition in partitions}
        asked = self._admin.list_offsets(of, isolation_level=level, request_timeout=self._timeout_s)
        return {at.partition: found for at, found in asked.items()}

    def _electing(self, asked: Future[Any]) -> bool:
        """Return whether the partition has no leader now, so that it must be asked again (guarantee 2)."""
        try:
            return leaderless(asked.exception(self._timeout_s + _GRACE_S))
        except TimeoutError:
            return False

    def _answer(self, asked: Future[T], act: str, topic: str) -> T:
        try:
            with step(f"{act} topic {topic}", asked=kafka_at(self._servers)):
                found = asked.result(self._timeout_s + _GRACE_S)
        except (KafkaException, TimeoutError) as error:
            self._admin.poll(0)  # delivers what librdkafka has said meanwhile
            raise explained(error, f"{act} topic {topic}", topic, self._servers, self._heard) from error
        self._admin.poll(0)
        self._heard = ""  # of what is over
        return found

    def _learn_controller(self) -> None:
        """Ask for the cluster's metadata, which names the controller that answers questions about topics.

        While a controller is elected, the brokers know of none.  librdkafka by itself would ask them for it again
        after five minutes (seen with 2.16).
        """
        with contextlib.suppress(KafkaException):
            self._admin.list_topics(timeout=_LEARN_S)

    def _hear(self, error: Any) -> None:
        self._heard = text_of(error)


def _check_right(described: Any, operation: AclOperation, what: str, topic: str) -> None:
    allowed = described.authorized_operations  # None: the brokers did not say
    if allowed is not None and operation not in allowed:
        name = operation.name.capitalize()
        raise forbidden(f"{name} on {what}", topic, "", f"the right {name} on {what}")


def same_topic(inspector: TopicInspector, contract: Contract, advice: str) -> TopicState:
    """Return the topic's current state.

    Raises ``TopicReplaced`` if its id is not the contract's, because offsets then mean other records.  ``advice``
    ends the error's text.
    """
    topic = inspector.describe(contract.topic)
    if topic.topic_id != contract.topic_id:
        raise TopicReplaced(
            f"topic {contract.topic} has id {topic.topic_id}, the table's contract says {contract.topic_id}: it was "
            f"deleted and recreated, and does not have the table's records. {advice}",
            topic=contract.topic,
        )
    return topic
