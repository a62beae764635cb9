"""Translation of Kafka's error codes into errors of lancewal.  No other module translates them."""

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
"""Error codes of a batch that the client cannot read.  ``_BAD_COMPRESSION``: the client cannot unpack the batch.
``_BAD_MSG``: its checksum is wrong.  ``_NOT_IMPLEMENTED``: its format is unknown.  The error's offset is that of the
batch.  After ``_BAD_COMPRESSION`` the client requests the batch again, for ever.  After the other two it goes on
after the batch."""

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
"""Words with which librdkafka and OpenSSL say that broker or client does not accept the other's identity.  The
request itself only times out."""


def error_of(error: BaseException | None) -> KafkaError | None:
    """Return the ``KafkaError`` inside a ``KafkaException``; None for any other error."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return None


def code_of(error: BaseException | None) -> int | None:
    """Return the code of the ``KafkaError`` inside a ``KafkaException``; None for any other error."""
    found = error_of(error)
    return None if found is None else found.code()


def leaderless(error: BaseException | None) -> bool:
    """Return whether the error says that a partition has no leader now: after its topic's creation, or while a broker
    stops."""
    return code_of(error) in _NO_LEADER


def explained(error: BaseException, act: str, topic: str, servers: str = "", heard: str = "") -> LancewalError:
    """Return the error to raise instead of a Kafka exception: ``TopicMissing``, ``KafkaForbidden``, ``KafkaRefused``
    or ``KafkaUnavailable``.

    ``act`` says in the message what was tried, such as "listing topics".  ``servers`` are the brokers that were
    asked.  ``heard`` is the last error that the client itself has reported, which may say why no broker answers.
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
    if code in _NO_LEADER:
        at = f" at {servers}" if servers else ""
        return KafkaUnavailable(
            f"{act}: a partition has no leader{at} ({_text(error)}). That lasts for a moment after a topic is created or a "
            "broker stops: try again, else look at the brokers' logs",
            topic=topic,
        )
    more = f" ({heard})" if heard else ""
    if code is not None and code > 0:  # the brokers' own, such as the coordinator of a group that is being chosen
        answer = f"Kafka at {servers} answers with an error: " if servers else ""
        return KafkaUnavailable(
            f"{answer}{act}: {_text(error)}{more}; the error may be transient: try again, or look at the brokers' logs",
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
    """Return the error for an ``act`` that the brokers forbid.

    ``said`` is the brokers' text, with its punctuation: it follows the words "do not allow it".  ``rights`` are those
    that the user needs.
    """
    return KafkaForbidden(
        f"{act}: the brokers do not allow it{said}. Grant this user {rights} (docs/reference/trust.md lists them), or set "
        "another user in kafka.options",
        topic=topic,
    )


def not_accepted(error: BaseException) -> InvalidSettings:
    """Return the error for a client that cannot be made, since librdkafka does not accept its properties."""
    return InvalidSettings(
        f"kafka.options: librdkafka does not accept them: {_text(error)}. Correct or remove the property"
    )


def unreadable(topic: str, partition: int, position: Position, reason: str) -> RecordsUnreadable:
    """Return the error for records at ``position`` that this client cannot read."""
    return RecordsUnreadable(
        f"topic {topic} partition {partition}: the records at offset {position} cannot be read: {reason}. If they only "
        "unpack to more than is allowed, raise kafka.options receive.message.max.bytes, and restart. To go on without them: "
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
    """Return librdkafka's text of the error.  If the text is empty or ends with a colon, the meaning of the error's
    code follows."""
    said = without_secrets(error.str())
    return said + KafkaError(error.code()).str() if said.rstrip().endswith(":") or not said else said
