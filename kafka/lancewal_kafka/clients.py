"""Properties of lancewal's Kafka clients.

Guarantees
 1. The settings' properties (``kafka.options``) cannot change a property that correctness depends on.  The attempt
    raises ``InvalidSettings``.
 2. Properties that only a consumer knows reach no producer.
"""

from __future__ import annotations

from collections.abc import Mapping

from lancewal_core.errors import InvalidSettings

Properties = dict[str, str | int | float | bool]

REQUEST_TIMEOUT_S = 10.0
"""Seconds that a request to the broker may take before the broker counts as silent."""

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
_CLASSIC: Properties = {
    # A member learns by its heartbeat's answer that another one joins or leaves, and twice for each: with the client's default
    # of 3 s joining took 3.2 to 4.1 s, so 1.3 to 1.7.  Two small requests a second.
    "heartbeat.interval.ms": 500,
}
"""Properties of the classic group protocol alone.  With the newer protocol (``group.protocol=consumer``) the broker
sets them."""
_ALIASES = {
    "auto.commit.enable": "enable.auto.commit",
    "metadata.broker.list": "bootstrap.servers",
}
_SHARED_PREFIXES = (
    "bootstrap.", "client.", "security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.", "socket.",
    "broker.", "reconnect.", "retry.", "connections.", "metadata.max.", "topic.metadata.", "api.", "allow.auto.", "log",
    "debug",
)  # fmt: skip

QUEUE_BYTES_MAX = 256 << 20
"""Largest number of bytes that librdkafka may prefetch into its queue.  A larger queue makes nothing faster."""
_RECEIVE = "receive.message.max.bytes"
_RECEIVE_MOST = 2**31 - 1
_ENVELOPE = 512
"""Bytes by which ``receive.message.max.bytes`` must at least exceed ``fetch.max.bytes``."""
_GROWTH = 3
"""Factor by which librdkafka enlarges its buffer at each try to unpack a zstd frame that does not state its unpacked
size."""
_UNPACKED = 10_000
"""Approximate factor by which records can be larger in memory than in the topic.  The worst case is repetitive text
in zstd, with one record in each batch.  librdkafka unpacks a whole answer of the broker before it checks whether
there is room."""
_FETCH_BYTES_MIN = 1_000
"""Smallest ``message.max.bytes`` that librdkafka allows.  A broker sends a larger batch anyway."""
_FETCH_WAIT_MS = 25
"""Milliseconds that the broker waits for more records if an answer is small.  The wait saves requests, each of which
names all partitions.  With 10,000 records/s of 64 partitions, broker and two members took 1.12 cores with the wait,
and 1.27 without (own measurement)."""
_FEW_PARTITIONS = 64
_PARTITIONS_AT_ONCE = 10
"""For each so many partitions beyond ``_FEW_PARTITIONS``, the largest answer of the broker grows by its size for few
partitions.  With 300 partitions a client took some hundred records a second if an answer held one batch.  With
answers of thirty times that size it took 30,000 (own measurement, two loaded cores)."""


def kafka_at(servers: str) -> str:
    """Return the name of the brokers for people: all addresses that the client tries."""
    return f"Kafka at {servers}"


def client_bytes(memory_bytes_max: int) -> int:
    """Return how many bytes of a process's memory budget librdkafka's queue gets: a quarter, at most
    ``QUEUE_BYTES_MAX``."""
    return min(memory_bytes_max // 4, QUEUE_BYTES_MAX)


def unpacking_bounded(client: Mapping[str, str], memory_bytes_max: int, record_bytes_max: int) -> dict[str, str]:
    """Return ``client`` for reading records, with ``receive.message.max.bytes`` added if it is not set.

    A zstd batch that unpacks to more bytes cannot be read.  For other codecs librdkafka has no limit (ingest's
    ``batch_check``).  An added limit allows the largest record (``record_bytes_max``).
    """
    if _RECEIVE in client:
        return dict(client)
    fetched = client.get("fetch.max.bytes", "")
    least = max(_GROWTH * record_bytes_max + (1 << 20), int(fetched) + _ENVELOPE if fetched.isdecimal() else 0)
    limit = max(least, _of_an_answer(client_bytes(memory_bytes_max)))
    return {**client, _RECEIVE: str(min(limit, _RECEIVE_MOST))}


def unpacked_bytes_max(client: Mapping[str, str]) -> int:
    """Return the largest size to which a zstd batch may unpack in an ``unpacking_bounded`` client.

    Raises ``InvalidSettings`` if the property is not an integer.
    """
    try:
        return int(client[_RECEIVE])
    except ValueError:
        raise InvalidSettings(
            f"kafka.options: {_RECEIVE} is {client[_RECEIVE]!r}, which is not an integer", property=_RECEIVE
        ) from None


def _of_an_answer(queue_bytes: int) -> int:
    """Return how many bytes one answer of the broker may unpack to, for a queue of ``queue_bytes``."""
    return queue_bytes * 3 // 4


def bounded_consumer_properties(
    client: Mapping[str, str], group: str, memory_bytes: int, partitions: int = 1
) -> Properties:
    """Return ``consumer_properties`` for a consumer that takes about ``memory_bytes``.

    A quarter of the memory is for fetched records.  One answer of the broker may exceed that quarter when it is
    unpacked.  An answer with one of the ``partitions`` may then take twice the rest of the memory.  It may take more
    if it has many partitions, all full of records that unpack to ten thousand times their size.

    Answers are small, and each is requested after the one before.  Near the broker this is as fast as large ones.
    Measured on one machine: large batches need 4 KB.  Records sent one by one need 16 KB, and are a quarter as fast
    with 8 KB.  If the broker is far away and the producers are known, set ``fetch.max.bytes`` and
    ``max.partition.fetch.bytes``.
    """
    answer = max(_FETCH_BYTES_MIN, _of_an_answer(memory_bytes) // _UNPACKED)
    whole = answer * (1 + max(0, partitions - _FEW_PARTITIONS) // _PARTITIONS_AT_ONCE)
    one = min(whole, 2 * answer)  # a batch of producers' default size at least, or only one comes with each answer
    sizes: Properties = {"fetch.max.bytes": whole, "max.partition.fetch.bytes": one, "message.max.bytes": answer}
    if client.keys().isdisjoint(("fetch.max.bytes", "fetch.min.bytes", "fetch.wait.max.ms")):
        sizes |= {"fetch.min.bytes": whole // 2, "fetch.wait.max.ms": _FETCH_WAIT_MS}
    properties = consumer_properties(client, group, memory_bytes // 4)
    return {**properties, **{name: value for name, value in sizes.items() if name not in client}}


def consumer_properties(client: Mapping[str, str], group: str, queue_bytes: int) -> Properties:
    """Return the properties of a consumer in ``group``.

    ``client`` holds ``bootstrap.servers`` and ``kafka.options``.  Raises ``InvalidSettings`` if it gives another
    value to a property that correctness depends on.  ``queue_bytes`` bounds the bytes that librdkafka prefetches;
    only the last answer of the broker may exceed it.
    """
    ours: Properties = {
        **_PROTECTED,
        "bootstrap.servers": client.get("bootstrap.servers", ""),
        "group.id": group,
        "queued.max.messages.kbytes": max(1, queue_bytes >> 10),
    }
    chosen = _CHOSEN
    if client.get("group.protocol") != "consumer":
        ours["partition.assignment.strategy"] = "cooperative-sticky"
        chosen = {**_CHOSEN, **_CLASSIC}
    for name, value in client.items():
        known = ours.get(_ALIASES.get(name, name))
        if known is not None and value.lower() != str(known).lower():
            raise InvalidSettings(
                f"kafka.options: {name} is {value!r}, but lancewal needs {str(known).lower()!r}; remove it"
                + (" and set ingest.memory_bytes_max" if name == "queued.max.messages.kbytes" else ""),
                property=name,
            )
    return {**chosen, **{n: v for n, v in client.items() if n not in _ALIASES}, **ours}


def lone_consumer_properties(client: Mapping[str, str], group: str, queue_bytes: int) -> Properties:
    """Return the properties of a consumer that joins no group.  Its caller assigns the partitions."""
    alone = {name: value for name, value in client.items() if name not in _MEMBERSHIP}
    properties = consumer_properties(alone, group, queue_bytes)
    if "fetch.max.bytes" not in alone and _RECEIVE in alone and queue_bytes + _ENVELOPE > unpacked_bytes_max(alone):
        properties["fetch.max.bytes"] = unpacked_bytes_max(alone) - _ENVELOPE
    return properties


def shared_properties(client: Mapping[str, str]) -> Properties:
    """Return those of the settings' properties that every kind of client has: addresses, TLS, SASL, sockets."""
    return {name: value for name, value in client.items() if name.startswith(_SHARED_PREFIXES)}
