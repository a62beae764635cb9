"""Kafka's errors as the caller's: here alone its codes become errors of this project."""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException

from lancewal_core.errors import (
    InvalidSettings,
    KafkaForbidden,
    KafkaRefused,
    KafkaUnavailable,
    LancewalError,
    RecordsUnreadable,
    TopicMissing,
)
from lancewal_core.names.ids import Position
from lancewal_core.process.library_errors import without_secrets

UNREADABLE = frozenset([KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError._NOT_IMPLEMENTED])
"""Errors of a batch that the client cannot unpack, whose checksum is wrong, or that has a form it does not know.  Their
offset is that of the batch.  After an error of the first kind the client asks for the batch again, for ever.  After
the others it goes on behind it."""

_NO_SUCH_TOPIC = frozenset([KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION])
_NOT_ALLOWED = frozenset(
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ]
)
_NO_LEADER = frozenset(
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    ]
)

_REFUSED = re.compile(
    r"authentication (?:error|failed)|certificate verify failed|alert (?:bad certificate|certificate \w+|unknown ca)",
    re.IGNORECASE,
)
"""Words of librdkafka and OpenSSL where broker or client does not accept who the other is.  The question itself times out."""


def error_of(error: BaseException | None) -> KafkaError | None:
    """The ``KafkaError`` inside a ``KafkaException``."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return None


def code_of(error: BaseException | None) -> int | None:
    """The code of the ``KafkaError`` inside a ``KafkaException``."""
    found = error_of(error)
    return None if found is None else found.code()


def leaderless(error: BaseException | None) -> bool:
    """Whether the partition has no leader right now: behind its topic's creation, or while a broker goes."""
    return code_of(error) in _NO_LEADER


def explained(error: BaseException, act: str, topic: str, servers: str = "", heard: str = "") -> LancewalError:
    """Return the error to raise instead of a Kafka exception: ``TopicMissing``, ``KafkaForbidden``, ``KafkaRefused`` or
    ``KafkaUnavailable``.

    ``servers``: who was asked.  ``heard``: what the client has said meanwhile, which tells why nobody answers.
    """
    code = code_of(error)
    if code in _NO_SUCH_TOPIC:
        at = f" at {servers}" if servers else ""
        return TopicMissing(
            f"topic {topic!r} does not exist{at} ({act}): create it (its number of partitions is the "
            "table's), or correct table.topic",
            topic=topic,
        )
    if code in _NOT_ALLOWED:
        return forbidden(act, topic, f": {_text(error)}", f"the rights on topic {topic!r} and its consumer group")
    more = f" ({heard})" if heard else ""
    if code is not None and code > 0:  # the brokers' own, such as the coordinator of a group that is being chosen
        answer = f"Kafka at {servers} answers with an error: " if servers else ""
        return KafkaUnavailable(
            f"{answer}{act}: {_text(error)}{more}; it may pass by itself: try again, else look at the brokers' logs",
            topic=topic,
        )
    if _REFUSED.search(heard):
        return KafkaRefused(
            f"Kafka at {servers} and this client do not trust each other: {act}: {heard}; correct the user, the password or "
            "the certificates in kafka.options",
            topic=topic,
        )
    silent = f"Kafka at {servers} does not answer: " if servers else ""
    return KafkaUnavailable(
        f"{silent}{act}: {_text(error)}{more}; check kafka.bootstrap_servers, kafka.options and the network",
        topic=topic,
    )


def forbidden(act: str, topic: str, said: str, rights: str) -> KafkaForbidden:
    """``said`` comes right behind the sentence, and names who says it."""
    return KafkaForbidden(
        f"{act}: the brokers do not allow it{said}. Grant this user {rights} (docs/reference/trust.md lists them), or set "
        "another one in kafka.options",
        topic=topic,
    )


def not_accepted(error: BaseException) -> InvalidSettings:
    """A client that cannot be made: librdkafka does not take its properties."""
    return InvalidSettings(f"kafka.options: not accepted by librdkafka: {_text(error)}")


def unreadable(topic: str, partition: int, position: Position, reason: str) -> RecordsUnreadable:
    """Nobody can read on at ``position`` with this client."""
    return RecordsUnreadable(
        f"topic {topic} partition {partition}: what lies at offset {position} cannot be read: {reason}. Where it only unpacks "
        "to more than is allowed, raise kafka.options receive.message.max.bytes, and restart. To go on without it: "
        f"`lancewal offset reject {topic}-{partition}-{position}`",
        topic=topic,
        partition=partition,
        offset=position,
    )


def _text(error: BaseException) -> str:
    found = error_of(error)
    if found is None and isinstance(error, TimeoutError):
        return "no answer"
    return (text_of(found) if found is not None else without_secrets(str(error))) or type(error).__name__


def text_of(error: KafkaError) -> str:
    """Return librdkafka's text.  Where that says nothing but the request's name, return what the code means."""
    said = without_secrets(error.str())
    return said + KafkaError(error.code()).str() if said.rstrip().endswith(":") or not said else said
