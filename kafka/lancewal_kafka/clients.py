"""Properties of our Kafka clients, what a Kafka error means for the caller, and the question that several of them ask.

Guarantees
 1. What correctness depends on cannot be changed by the pass-through (``kafka.librdkafka``): ``SettingsError``.
 2. Properties that only a consumer knows reach no other client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # imported there, not listed

from lancewal_core.errors import (
    InvalidInput,
    KafkaUnavailable,
    LancewalError,
    RecordsUnreadable,
    SettingsError,
    TopicMissing,
)
from lancewal_core.ids import Position

Properties = dict[str, str | int | float | bool]

REQUEST_TIMEOUT_S = 10.0
"""How long a question to the broker may take before it counts as silent."""

_PROTECTED: Properties = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "check.crcs": True,
    "isolation.level": "read_committed",
    "enable.partition.eof": False,
}
_CHOSEN: Properties = {
    # A full queue is looked at again after a second by default: consuming then runs at a fifth of its speed.
    "fetch.queue.backoff.ms": 50,
    # Of each partition.  Enough to go on while the next fetch is under way; each costs some hundred bytes beside itself,
    # which no other limit counts.
    "queued.min.messages": 20_000,
    # A partition that starts or resumes waits for the long poll under way: half a second by default.
    "fetch.wait.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 30_000,
    # A commit is synchronous: this bounds how long a hung coordinator can hold up the loop.
    "socket.timeout.ms": 30_000,
}
_MEMBERSHIP = frozenset({"group.instance.id", "group.protocol"})
_SPECS: Mapping[str, Any] = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}
_ALIASES = {
    "auto.commit.enable": "enable.auto.commit",
    "metadata.broker.list": "bootstrap.servers",
}
_SHARED_PREFIXES = (
    "bootstrap.", "client.", "security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.", "socket.",
    "broker.", "reconnect.", "retry.", "connections.", "metadata.max.", "topic.metadata.", "api.", "allow.auto.", "log",
    "debug",
)  # fmt: skip
_NOT_ALLOWED = frozenset(
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ]
)


_UNPACKED = 10_000
"""About how many times as large as in the topic records can be, each a batch of its own: text that repeats itself, in zstd.
librdkafka unpacks a whole answer before it looks whether there is room."""
_FETCH_BYTES_MIN = 1_000
"""librdkafka allows no less, and a broker sends a batch that is larger anyway."""

UNREADABLE = frozenset([KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError._NOT_IMPLEMENTED])
"""Errors of a batch that the client cannot unpack, whose checksum is wrong, or that has a form it does not know; their offset
is that of the batch.  Of the first kind the client asks for the batch again, for ever; of the others it goes on behind it."""


_FEW_PARTITIONS = 64
_PARTITIONS_AT_ONCE = 10
"""Of more than a few partitions an answer holds what one in so many of the others may fill, too.  With 300 of them a client
that gets one batch an answer took some hundred records a second, one that gets thirty times as much 30,000 (own measurement,
two loaded cores)."""


def bounded_consumer_properties(
    client: Mapping[str, str], group: str, memory_bytes: int, partitions: int = 1
) -> Properties:
    """As ``consumer_properties``, of a consumer that takes about ``memory_bytes``: a quarter for what it has fetched, which
    an answer of the broker may pass once, by what it unpacks to.  Of one of the ``partitions`` of the topic it may be twice
    what is left; of many of them at a time, each full of what unpacks to ten thousand times its size, more.

    Answers are small, and one is asked for behind the other.  Near the broker that is as fast (own measurement on one machine:
    of large batches with 4 KB; of records sent one by one from 16 KB on, and a quarter as fast with 8 KB).  Whoever is far
    from the broker and knows the producers sets ``fetch.max.bytes`` and ``max.partition.fetch.bytes``.
    """
    answer = max(_FETCH_BYTES_MIN, memory_bytes * 3 // 4 // _UNPACKED)
    whole = answer * (1 + max(0, partitions - _FEW_PARTITIONS) // _PARTITIONS_AT_ONCE)
    one = min(whole, 2 * answer)  # a batch of producers' default size at least, or only one comes with each answer
    sizes = {"fetch.max.bytes": whole, "max.partition.fetch.bytes": one, "message.max.bytes": answer}
    return {**sizes, **consumer_properties(client, group, memory_bytes // 4)}


def consumer_properties(client: Mapping[str, str], group: str, queue_bytes: int) -> Properties:
    """Properties of the consumer; ``client`` holds ``bootstrap.servers`` and the pass-through.

    ``queue_bytes`` bounds what librdkafka fetches ahead, but for the last answer.
    """
    ours: Properties = {
        **_PROTECTED,
        "bootstrap.servers": client.get("bootstrap.servers", ""),
        "group.id": group,
        "queued.max.messages.kbytes": max(1, queue_bytes >> 10),
    }
    if client.get("group.protocol") != "consumer":
        ours["partition.assignment.strategy"] = "cooperative-sticky"
    for name, value in client.items():
        known = ours.get(_ALIASES.get(name, name))
        if known is not None and value.lower() != str(known).lower():
            raise SettingsError(
                f"kafka.librdkafka: {name} is {value!r}, but lancewal needs {str(known).lower()!r}; remove it"
                + (" and set ingest.memory_bytes_max" if name == "queued.max.messages.kbytes" else ""),
                property=name,
            )
    return {**_CHOSEN, **{n: v for n, v in client.items() if n not in _ALIASES}, **ours}


def lone_consumer_properties(client: Mapping[str, str], group: str, queue_bytes: int) -> Properties:
    """Properties of a consumer that joins no group: it is assigned what it reads."""
    alone = {name: value for name, value in client.items() if name not in _MEMBERSHIP}
    return consumer_properties(alone, group, queue_bytes)


def shared_properties(client: Mapping[str, str]) -> Properties:
    """Those properties of the pass-through that every kind of client has: addresses, TLS, SASL, sockets."""
    return {name: value for name, value in client.items() if name.startswith(_SHARED_PREFIXES)}


def ask_offsets(
    admin: AdminClient,
    topic: str,
    partitions: Iterable[int],
    which: Literal["earliest", "latest"] | int,
    timeout_s: float,
    *,
    committed: bool = True,
) -> dict[int, Position]:
    """The first offset that each partition still has, the position behind its last committed record, or the first record of
    a time (milliseconds since 1970) or later, negative where there is none.  Not only ``committed``: open transactions
    count."""
    try:
        asked = admin.list_offsets(
            {
                TopicPartition(topic, p): OffsetSpec.for_timestamp(which) if isinstance(which, int) else _SPECS[which]()
                for p in partitions
            },
            isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
            request_timeout=timeout_s,
        )
        return {at.partition: Position(found.result(timeout_s + 1).offset) for at, found in asked.items()}
    except (KafkaException, TimeoutError) as error:
        raise explained(error, f"asking for the {which} offsets of topic {topic}", topic) from error


def unreadable(topic: str, partition: int, position: Position, reason: str) -> RecordsUnreadable:
    """Nobody can read on at ``position`` with this client."""
    return RecordsUnreadable(
        f"topic {topic} partition {partition}: what lies at offset {position} cannot be read: {reason}. Where it only unpacks "
        "to more than is allowed, raise kafka.librdkafka receive.message.max.bytes, and restart. To go on without it: "
        f"`lancewal offsets reject {topic} {partition} {position}`",
        topic=topic,
        partition=partition,
        offset=position,
    )


def error_of(error: BaseException) -> KafkaError | None:
    """The ``KafkaError`` inside a ``KafkaException``."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return None


def explained(error: BaseException, act: str, topic: str) -> LancewalError:
    """What to raise instead of a Kafka exception: ``TopicMissing``, ``InvalidInput`` or ``KafkaUnavailable``."""
    found = error_of(error)
    code = None if found is None else found.code()
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return TopicMissing(f"topic {topic!r} does not exist ({act}): create it, or correct kafka.topic", topic=topic)
    if code in _NOT_ALLOWED:
        return InvalidInput(f"{act}: the broker does not allow it: {_text(error)}. Grant the rights on {topic!r}",
                            topic=topic)  # fmt: skip
    return KafkaUnavailable(
        f"{act}: {_text(error)}; check kafka.bootstrap_servers, kafka.librdkafka and the network", topic=topic
    )


def _text(error: BaseException) -> str:
    found = error_of(error)
    return (found.str() if found is not None else str(error)) or type(error).__name__
