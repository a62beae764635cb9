"""Dead letters: bad records, unchanged, in a topic of their own, with what is wrong in Kafka Connect's headers.

Guarantees
 1. ``send`` returns once the broker has acknowledged every record (all in-sync replicas).  At least once: after a crash
    or an error a record may be there twice, with the same ``lancewal.source``.
 2. Key, value and headers are those of the bad record; ours come behind them.
 3. Our headers hold places, kinds and expectations, never anything that was in the record, and no setting.

====================================  ==============================================================================
header                                value
====================================  ==============================================================================
``__connect.errors.topic``            topic of the bad record
``__connect.errors.partition``        its partition
``__connect.errors.offset``           its offset
``__connect.errors.connector.name``   the consumer group
``__connect.errors.task.id``          ``0``
``__connect.errors.stage``            ``VALUE_CONVERTER``
``__connect.errors.class.name``       the kind (``decode.records.KINDS``, ``misrouted``)
``__connect.errors.exception.class.name``  ``lancewal.BadRecord``
``__connect.errors.exception.message``  what was expected
``lancewal.source``                   ``<topic>-<partition>-<offset>``: the record's identity
====================================  ==============================================================================
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from lancewal_core.errors import KafkaUnavailable, LancewalError, SettingsError, TopicMissing, TopicUnsuitable
from lancewal_core.ids import Region
from lancewal_ingest.decode.records import Records, Rejected
from lancewal_ingest.kafka_clients import REQUEST_TIMEOUT_S, error_of, explained, shared_properties

SOURCE_HEADER = "lancewal.source"
_CONNECT = "__connect.errors."
_LARGEST_MESSAGE = 1_000_000_000
"""librdkafka's upper bound: what is too large is for the broker to say."""


class KafkaDeadLetters:
    """``DeadLetters`` in a Kafka topic; ``client`` holds ``bootstrap.servers`` and the pass-through properties.

    ``acknowledge_s`` bounds one ``send``.  One thread at a time.
    """

    def __init__(self, client: Mapping[str, str], topic: str, group: str, *, acknowledge_s: float = 30.0) -> None:
        self.topic = topic
        self._group = group
        self._acknowledge_s = acknowledge_s
        self._shared = shared_properties(client)
        self._producer = self._new_producer()

    def check(self) -> None:
        """The topic must exist: ``TopicMissing`` says what to do.  ``KafkaUnavailable`` if the broker is silent."""
        act = f"looking for the dead-letter topic {self.topic}"
        try:
            admin = AdminClient({"log_level": 2, **self._shared})
            asked = admin.describe_topics(TopicCollection([self.topic]), request_timeout=REQUEST_TIMEOUT_S)
            asked[self.topic].result(REQUEST_TIMEOUT_S + 1)
        except (KafkaException, TimeoutError) as error:
            raise self._explained(error, act) from error

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        failures: list[KafkaError] = []
        acknowledged = 0

        def delivered(error: KafkaError | None, _: Message) -> None:
            nonlocal acknowledged
            if error is None:
                acknowledged += 1
            else:
                failures.append(error)

        for letter in rejected:
            at = bisect_left(records.offsets, letter.offset)
            headers = [*(records.headers[at] or []), *self._headers(region, letter)]
            self._produce(records.keys[at], records.values[at], headers, delivered)
        waiting = self._producer.flush(self._acknowledge_s)
        if acknowledged == len(rejected):
            return
        if waiting or any(error.fatal() for error in failures):
            # What is still queued would be sent later, behind our back; a producer after a fatal error sends nothing.
            self._producer = self._new_producer()
        raise self._undelivered(failures, len(rejected) - acknowledged)

    def close(self) -> None:
        self._producer.flush(0)

    def _produce(
        self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], delivered: Any
    ) -> None:
        while True:
            try:
                self._producer.produce(self.topic, value=value, key=key, headers=headers, on_delivery=delivered)  # type: ignore[arg-type] # a header's value may be None
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                found = error_of(error)
                if found is not None and found.fatal():
                    self._producer = self._new_producer()
                raise self._explained(error, f"sending to the dead-letter topic {self.topic}") from error

    def _headers(self, region: Region, letter: Rejected) -> list[tuple[str, bytes]]:
        named = {
            f"{_CONNECT}topic": region.topic,
            f"{_CONNECT}partition": region.partition,
            f"{_CONNECT}offset": letter.offset,
            f"{_CONNECT}connector.name": self._group,
            f"{_CONNECT}task.id": 0,
            f"{_CONNECT}stage": "VALUE_CONVERTER",
            f"{_CONNECT}class.name": letter.kind,
            f"{_CONNECT}exception.class.name": "lancewal.BadRecord",
            f"{_CONNECT}exception.message": letter.message,
            SOURCE_HEADER: f"{region.topic}-{region.partition}-{letter.offset}",
        }
        return [(name, str(value).encode()) for name, value in named.items()]

    def _undelivered(self, failures: Sequence[KafkaError], missing: int) -> LancewalError:
        act = f"sending to the dead-letter topic {self.topic}"
        for error in failures:
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                return TopicUnsuitable(
                    f"the dead-letter topic {self.topic} refuses a record because of its size: raise its "
                    "max.message.bytes above that of the topic (our headers add some hundred bytes)",
                    topic=self.topic,
                )
        if failures:
            return self._explained(KafkaException(failures[0]), act)
        return KafkaUnavailable(f"{act}: {missing} not acknowledged within {self._acknowledge_s} s", topic=self.topic)

    def _explained(self, error: BaseException, act: str) -> LancewalError:
        explanation = explained(error, act, self.topic)
        if isinstance(explanation, TopicMissing):
            return TopicMissing(
                f"the dead-letter topic {self.topic!r} does not exist: create it, name another with "
                "ingest.dead_letter_topic, or set ingest.bad_records to 'stop'",
                topic=self.topic,
            )
        return explanation

    def _new_producer(self) -> Producer:
        properties: dict[str, Any] = {
            **self._shared,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": "lz4",
            "message.max.bytes": _LARGEST_MESSAGE,
            # The topic's limit holds for a batch: several small letters must not fail as one large one.
            "batch.size": 100_000,
            "delivery.timeout.ms": int(self._acknowledge_s * 1000),
        }
        try:
            return Producer(properties, logger=logging.getLogger("lancewal.kafka"))
        except (KafkaException, ValueError, TypeError) as error:
            found = error_of(error)
            raise SettingsError(f"kafka.librdkafka: {found.str() if found is not None else error}") from error


class RefusedDeadLetters:
    """``DeadLetters`` for the policy ``stop``: a bad record stops its partition before it gets here."""

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        raise AssertionError(f"a dead letter of {region.name} under the policy 'stop'")
