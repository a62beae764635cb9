"""``KafkaSource`` over librdkafka's consumer.

Guarantees
 1. An assigned partition delivers nothing until ``start``, then exactly the committed records from that position on,
    in offset order, none twice.  Records that the client still holds from before ``start`` or ``resume`` are dropped.
 2. ``Polled.next`` never passes a record that was not delivered: it is the consumer's own position right after the
    poll, or the one after the last record delivered, whichever is higher.
 3. Reading starts at the position given to ``start``, never at the group's: an assigned partition begins paused.
 4. Committed positions never go back, and are only those handed to ``commit`` (or known to the group already).
 5. If the broker does not have the next offset, the partition stops (``RetentionLost``, ``TopicTruncated``) and is
    never reset.  Records polled before are delivered first.
 6. The partition also stops if the records below the position are other ones than this process read: the topic lost
    its tail and has grown again.  The broker's leader epochs show that.  No epoch is known for positions that other
    processes reached.
 7. The partition also stops if a batch cannot be read (``errors.UNREADABLE``) and a second request fails too
    (``RecordsUnreadable``).  Nothing after that batch is delivered, although the client may go on there.
 8. ``commit`` waits at most ``_COORDINATOR_S`` for a silent coordinator, unless it falls silent between the question
    and the commit.
 9. ``close`` gives up all partitions and leaves the group, with partitions or without.  If the member is still joining
    for the first time, ``close`` waits up to ``_JOINING_S`` for that to end.

Kafka handles one request at a time on a connection.  While a member waits to rejoin, for other members that have not,
the coordinator answers no other request of this member.  It answers when the slowest member has joined, or is
considered dead.  librdkafka waits for a commit sent meanwhile, also in ``close``, until the commit times out.

Therefore ``commit`` first asks the coordinator a question, and sends nothing if no answer comes (guarantee 8).
``close`` lets a first join end.  A member that goes in the middle of a join, or without leaving, remains in the group.
The others would wait for it until its session times out (guarantee 9).

A static member whose predecessor has just died is refused until the broker has noticed the death
(``UNRELEASED_INSTANCE_ID`` of the newer group protocol).  librdkafka's client cannot be used after that, so a new
client is made every ``RENEW_S`` until one is accepted.

Any other fatal error (a static member was replaced, the client cannot recover) raises ``Fenced``.  The process ends
with an error, and its supervisor starts it again, with a growing pause.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined] # imported there, not listed

from lancewal_core.errors import Fenced, KafkaUnavailable, LancewalError, TopicTruncated, or_raised
from lancewal_core.names.ids import Position, Region, TopicId, position_after
from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.library_errors import without_secrets
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.kafka.source import Offsets, Polled, PollListener, Positions
from lancewal_ingest.kafka.statistics import INTERVAL_MS, ClientFigures, client_figures
from lancewal_kafka.clients import REQUEST_TIMEOUT_S, bounded_consumer_properties
from lancewal_kafka.errors import UNREADABLE, code_of, explained, not_accepted, text_of, unreadable
from lancewal_kafka.records import PARTITION, TOPIC, Records, by_partition
from lancewal_kafka.retention import KafkaCompaction
from lancewal_kafka.topic import TopicFacts, TopicInspector

RENEW_S = 1.0
_UNRELEASED = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()
_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str()

T = TypeVar("T")

Report = Callable[[str, object], None]
"""Function that is told of a passing fault: the name of the operation, and the cause."""

_COORDINATOR_S = 2.0
"""Seconds to wait for the coordinator's answer before a commit.  Without an answer no commit is sent."""
_JOINING_S = 5.0
"""Seconds that ``close`` waits for a first join to end."""
_UNASSIGNED_S = 5.0
"""Seconds that ``close`` waits until the client has given up its partitions."""
_LOOK_S = 0.05

_NONE_YET = 0
_NO_EPOCH = -1


def _unreported(act: str, cause: object) -> None:
    IngestEvents().operation_failed(operation=act, error=without_secrets(str(cause)))


class ConfluentSource:
    """``KafkaSource`` by a consumer of librdkafka.

    ``client`` holds ``bootstrap.servers`` and the pass-through properties.  ``topics`` maps each topic's name to its
    id.  Each topic has ``partitions`` partitions.  ``queue_bytes`` limits the records that librdkafka buffers.
    ``poll`` calls ``statistics`` with the client's figures from time to time.
    """

    def __init__(
        self,
        client: Mapping[str, str],
        topics: Mapping[str, str],
        group: str,
        *,
        queue_bytes: int = 128 << 20,
        partitions: int = 1,
        report: Report = _unreported,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        clock: Clock | None = None,
        statistics: Callable[[ClientFigures], None] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self.polled_at = self._clock.monotonic()
        """Monotonic time in seconds of the newest poll.  The group removes a member that does not poll."""
        self._told: tuple[dict[Region, Position], Callable[[bool], None]] | None = None
        """Positions of the commit under way, and the callback for its end; None if no commit is under way."""
        self._listener: PollListener | None = None
        self._renew_at: float | None = None
        """Monotonic seconds at which to make a new client, because the instance id is still taken."""
        self._topics = topics
        self._named_topics = ", ".join(topics)
        self._group = group
        self._report = report
        self._request_timeout_s = request_timeout_s
        self._fatal: KafkaError | None = None
        self._joining = False
        """Whether the group has not assigned partitions since this member subscribed."""
        self._regions: dict[tuple[str, int], Region] = {}
        """Region by topic and partition, one object each: dictionaries then compare them by identity, which is fast."""
        self._assigned: set[Region] = set()
        self._next: dict[Region, Position] = {}
        """Started partitions, each with the position after the records that were delivered."""
        self._floor: dict[Region, Position] = {}
        """Positions below which nothing is committed any more."""
        self._epochs: dict[Region, tuple[Position, int]] = {}
        """Positions reached, also in former assignments, each with the leader epoch of the records before it."""
        self._out_of_range: dict[Region, str] = {}
        """Partitions that the client no longer fetches because the broker lacks the next offset, with the client's
        reason."""
        self._unreadable: dict[Region, str] = {}
        """Partitions whose next batch cannot be read, with the client's reason.  Their records are not delivered."""
        self._read_again: dict[Region, Position] = {}
        """Position of a batch that could not be read and was requested a second time."""
        self._properties: dict[str, Any] = {
            **bounded_consumer_properties(client, group, queue_bytes, partitions),
            "error_cb": self._on_error,
            "on_commit": self._on_commit,
        }
        if statistics is not None:
            self._properties.setdefault("statistics.interval.ms", INTERVAL_MS)
            self._properties["stats_cb"] = lambda text: statistics(client_figures(text))
        try:
            self._consumer = self._new_consumer()
        except (KafkaException, ValueError, TypeError) as error:
            raise not_accepted(error) from error
        # The loop repeats the question by itself, and must not wait for a partition without a leader.
        self._inspector = TopicInspector(client, request_timeout_s, election_s=0)
        self._compaction = {topic: KafkaCompaction(self._inspector, topic, self._clock, report) for topic in topics}

    # -- consuming -----------------------------------------------------------------------------------------------

    def subscribe(self, listener: PollListener) -> None:
        self._listener = listener

        def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self._joining = False
            mine = [self._region(p.topic, p.partition) for p in partitions]
            # The offset does not matter: the partition is paused, and ``start`` seeks.  But not OFFSET_END: a seek while
            # librdkafka still asks for the end offset can leave the partition silent for ever (measured: 1 in 10).
            consumer.incremental_assign([TopicPartition(r.topic, r.partition, 0) for r in mine])
            if mine:
                consumer.pause(_places(mine))
                self._assigned.update(mine)
            listener.assigned(mine)

        # In the newer protocol members do not wait for each other, and a member without partitions hears nothing.
        self._joining = self._properties.get("group.protocol") != "consumer"
        self._consumer.subscribe(
            [*self._topics],
            on_assign=on_assign,
            on_revoke=partial(self._leave, listener.revoked),
            on_lost=partial(self._leave, listener.lost),
        )

    def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        self.polled_at = self._clock.monotonic()
        self._renew_if_due()
        self._explain_out_of_range()
        self._explain_unreadable()
        messages = self._consumer.consume(1, timeout_s)
        if messages and records_max > 1:
            messages += self._consumer.consume(records_max - 1, 0)
            if gather_s and len(messages) < records_max:
                # A waiting ``consume`` wakes up for each partition of each answer: sleep instead, then take all at once.
                self._clock.sleep(gather_s)
                messages += self._consumer.consume(records_max - len(messages), 0)
        positions = self._consumer.position(_places(self._next)) if self._next else []
        good = self._without_errors(messages)
        records: dict[Region, Records] = {}
        for region, columns in self._by_region(good).items():
            expected = self._next.get(region)
            if expected is None:
                continue  # not started (any more)
            wanted = columns if columns.offsets[0] >= expected else _from(columns, expected)
            if len(wanted):
                records[region] = wanted
                self._next[region] = position_after(wanted.offsets[-1])
        for region, at in zip(self._next, positions, strict=True):
            if region in self._unreadable:
                continue  # the client may have gone on after the batch that cannot be read
            # Invalid (negative) until the first record or marker after a seek was passed.
            if at.offset > self._next[region]:
                self._next[region] = Position(at.offset)
            if at.offset >= 0:
                epoch: int | None = at.leader_epoch
                self._epochs[region] = Position(at.offset), _NO_EPOCH if epoch is None else epoch
        return Polled(records, dict(self._next))

    def start(self, region: Region, position: Position) -> None:
        self._next[region] = position
        self._floor[region] = max(position, self._floor.get(region, position))
        self._seek(region, position)
        self._consumer.resume(_places([region]))

    def stop(self, region: Region) -> None:
        self._forget_start(region)
        self._consumer.pause(_places([region]))

    def pause(self, regions: Sequence[Region]) -> None:
        if regions:
            self._consumer.pause(_places(regions))

    def resume(self, regions: Sequence[Region]) -> None:
        # Seek to the known position: librdkafka may lose it if a partition is paused before its first fetch.
        started = [region for region in regions if region in self._next]
        for region in started:
            self._seek(region, self._next[region])
        if started:
            self._consumer.resume(_places(started))

    # -- asking the broker ---------------------------------------------------------------------------------------

    def facts(self, topic: str) -> TopicFacts:
        return self._inspector.identify(topic)

    def check_rights(self) -> None:
        """Raise ``KafkaForbidden`` if this user may not read a topic or not join the group.

        Without this check the client reports missing rights only after it subscribes, as errors that look transient.
        """
        for topic in self._topics:
            self._inspector.check_right(topic, AclOperation.READ)
            self._inspector.check_right_on_group(topic, self._group, AclOperation.READ)

    def offsets(self, region: Region) -> Offsets:
        return or_raised(self.offsets_of_each([region])[region])

    def offsets_of_each(self, regions: Collection[Region]) -> dict[Region, Offsets | LancewalError]:
        return _asked(self._offsets, regions)

    def _offsets(self, topic: str, partitions: Collection[int]) -> dict[int, Offsets | LancewalError]:
        limits = self._inspector.limits(topic, partitions)
        known = {p: found for p, found in limits.items() if not isinstance(found, LancewalError)}
        failed = {p: found for p, found in limits.items() if isinstance(found, LancewalError)}
        try:
            compactions = self._compaction[topic].of_each({p: high for p, (_, high) in known.items()})
        except LancewalError as error:
            return {p: failed.get(p, error) for p in partitions}
        return failed | {p: Offsets(low, high, compactions[p]) for p, (low, high) in known.items()}

    def ends(self, regions: Collection[Region]) -> dict[Region, Position]:
        """Ask the broker for the position after the last committed record of each partition.  Any thread may call."""
        return _asked(self._inspector.ends, regions)

    def high_watermarks(self, regions: Collection[Region]) -> dict[Region, Position]:
        """Ask the broker for the position after the last record of each partition, including open transactions.  Any
        thread may call.
        """
        return _asked(partial(self._inspector.ends, committed=False), regions)

    def highs(self) -> dict[Region, Position]:
        """Return the high watermarks of started partitions as of their last fetches, without asking the broker.

        The value of a paused partition is stale."""
        found: dict[Region, Position] = {}
        for region, place in zip(self._next, _places(self._next), strict=True):
            limits = self._consumer.get_watermark_offsets(place, cached=True)
            if limits[1] >= 0:
                found[region] = Position(limits[1])
        return found

    # -- the group -----------------------------------------------------------------------------------------------

    def commit(self, positions: Positions) -> bool:
        wanted = self._not_below(positions)
        try:
            known = self._known_position()
            wanted = wanted or known
            if not wanted:
                return False
            answers = self._consumer.commit(offsets=_places(wanted, wanted), asynchronous=False) or []
        except KafkaException as error:
            self._report("offset-commit", explained(error, "committing positions", self._named_topics))
            return False
        return self._taken(wanted, answers)

    def commit_soon(self, positions: Positions, done: Callable[[bool], None]) -> None:
        wanted = self._not_below(positions)
        try:
            self._consumer.commit(offsets=_places(wanted, wanted), asynchronous=True)
        except KafkaException as error:
            self._report("offset-commit", explained(error, "committing positions", self._named_topics))
            done(False)
        else:
            self._told = wanted, done

    def _on_commit(self, error: KafkaError | None, answers: list[TopicPartition]) -> None:
        """Take the answer to ``commit_soon``; librdkafka calls this from within ``poll``."""
        if self._told is None:
            return
        (wanted, done), self._told = self._told, None
        if error is not None:
            self._report("offset-commit", explained(KafkaException(error), "committing positions", self._named_topics))
        done(error is None and self._taken(wanted, answers))

    def _not_below(self, positions: Positions) -> dict[Region, Position]:
        return {r: n for r, n in positions.items() if n >= self._floor.get(r, _NONE_YET)}

    def _taken(self, wanted: Positions, answers: Sequence[TopicPartition]) -> bool:
        refused = [a for a in answers if a.error is not None]
        for answer in refused:
            self._report("offset-commit", f"partition {answer.partition}: {answer.error}")
        if refused or len(answers) < len(wanted):
            return False
        self._floor.update({r: n for r, n in wanted.items() if r in self._assigned})
        return True

    def close(self) -> None:
        until = self._clock.monotonic() + _JOINING_S
        while self._joining and self._fatal is None and self._clock.monotonic() < until:
            self._consumer.poll(_LOOK_S)
        if self._listener is not None and self._fatal is None:
            # First ``unsubscribe``, for two reasons.  By ``close`` alone, librdkafka 2.16 does not tell the group that it
            # leaves if it has no partition.  If it has some, the callback for their loss may come while the client ends,
            # and ``incremental_unassign`` then waits for ever in rare cases (confluentinc/librdkafka #4884).
            self._consumer.unsubscribe()
            until = self._clock.monotonic() + _UNASSIGNED_S
            while self._assigned and self._clock.monotonic() < until:
                self._consumer.poll(_LOOK_S)
        self._consumer.close()

    def _known_position(self) -> dict[Region, Position]:
        """Return the position that the group already has for one of our partitions; empty if we have no partition.

        Committing that position again changes nothing, but only a member of the current generation may.  The position
        is 0, the lowest, if the group has none."""
        if not self._assigned:
            return {}
        region = min(self._assigned)
        (found,) = self._consumer.committed(_places([region]), timeout=min(self._request_timeout_s, _COORDINATOR_S))
        if found.error is not None:
            raise KafkaException(found.error)
        return {region: Position(max(found.offset, 0))}

    # -- details -------------------------------------------------------------------------------------------------

    def _region(self, topic: str, partition: int) -> Region:
        return self._regions.setdefault((topic, partition), Region(topic, TopicId(self._topics[topic]), partition))

    def _by_region(self, messages: Sequence[Message]) -> dict[Region, Records]:
        topics = dict.fromkeys(self._topics, messages) if len(self._topics) == 1 else _by_topic(messages)
        parts = {topic: by_partition(of_topic) for topic, of_topic in topics.items()}
        return {self._regions[topic, p]: records for topic, part in parts.items() for p, records in part.items()}

    def _forget_start(self, region: Region) -> None:
        for known in (self._next, self._out_of_range, self._unreadable, self._read_again):
            known.pop(region, None)

    def _forget(self, regions: Sequence[Region]) -> None:
        for region in regions:
            self._assigned.discard(region)
            self._floor.pop(region, None)
            self._forget_start(region)

    def _leave(
        self, tell: Callable[[Sequence[Region]], None], consumer: Consumer, partitions: list[TopicPartition]
    ) -> None:
        left = [self._region(p.topic, p.partition) for p in partitions]
        try:
            tell(left)
        finally:
            self._forget(left)
            consumer.incremental_unassign(partitions)

    def _new_consumer(self) -> Consumer:
        return Consumer(self._properties, logger=logging.getLogger("lancewal.kafka"))

    def _renew_if_due(self) -> None:
        if self._renew_at is None or self._clock.monotonic() < self._renew_at or self._listener is None:
            return
        self._renew_at = None
        left = sorted(self._assigned)
        self._forget(left)
        self._consumer.close()
        self._consumer = self._new_consumer()
        if self._told is not None:  # the old client's callback will not come
            (_, done), self._told = self._told, None
            done(False)
        if left:
            self._listener.lost(left)
        self.subscribe(self._listener)

    def _seek(self, region: Region, position: Position) -> None:
        reached, epoch = self._epochs.get(region, (position, _NO_EPOCH))
        epoch = epoch if reached == position else _NO_EPOCH
        place = TopicPartition(region.topic, region.partition, position, leader_epoch=epoch)
        try:
            self._consumer.seek(place)
        except KafkaException as error:
            if code_of(error) != KafkaError._STATE:
                raise
            # The partition is not fetched since an offset was out of range: only a new assignment starts fetching again.
            self._consumer.incremental_unassign([place])
            self._consumer.incremental_assign([place])

    def _on_error(self, error: KafkaError) -> None:
        if _unreleased(error):
            self._renew_at = self._renew_at or self._clock.monotonic() + RENEW_S
        elif error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = error
        self._report("kafka", error)

    def _without_errors(self, messages: list[Message]) -> list[Message]:
        if self._fatal is None and not self._unreadable and not any(map(Message.error, messages)):
            return messages
        good = []
        for message in messages:
            error, region = message.error(), self._regions.get((TOPIC(message), PARTITION(message)))
            if error is None:
                if region not in self._unreadable:
                    good.append(message)
            elif error.code() in UNREADABLE and region in self._next:
                self._unreadable.setdefault(region, text_of(error))
            elif _unreleased(error) or self._renew_at is not None:
                self._renew_at = self._renew_at or self._clock.monotonic() + RENEW_S
            elif error.fatal() or error.code() == KafkaError._FATAL:
                self._fatal = error
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                if region in self._next:
                    self._out_of_range[region] = text_of(error)
            elif error.code() != KafkaError._PARTITION_EOF:
                self._report("kafka", error)
        if self._fatal is not None:
            raise Fenced(
                f"the Kafka client of topic {self._named_topics} cannot go on: {text_of(self._fatal)}. If another process has "
                "the same group.instance.id, stop one of them; this process ends and may be started again",
                topic=self._named_topics,
            )
        return good

    def _explain_out_of_range(self) -> None:
        """Stop a partition whose next offset the broker does not have, and raise why.

        If the broker has the offset after all, it is fetched again."""
        for region, reason in sorted(self._out_of_range.items()):
            at = self._next[region]
            try:
                offsets = self.offsets(region)
            except KafkaUnavailable as error:
                self._report("kafka", error)
                continue
            del self._out_of_range[region]
            problem = offsets.problem(region, at, "read")
            if problem is None and _TRUNCATION in reason and offsets.low < at:
                problem = region.partition_error(
                    TopicTruncated,
                    f"read up to position {at}, but Kafka now has other records before that position. The topic lost its "
                    "tail and has grown again",
                )
            if problem is not None:
                self.stop(region)
                raise problem
            if _TRUNCATION in reason:
                self._epochs.pop(region, None)  # Kafka has no record before the position that the epoch could compare
            self._seek(region, at)
            self._consumer.resume(_places([region]))

    def _explain_unreadable(self) -> None:
        """Request a batch that cannot be read once more: it may have been damaged on the network.

        If the second request fails too, stop the partition and raise ``RecordsUnreadable``."""
        for region, reason in sorted(self._unreadable.items()):
            at = self._next[region]
            if self._read_again.get(region) == at:
                self.stop(region)
                raise unreadable(region.topic, region.partition, at, reason)
            del self._unreadable[region]
            self._read_again[region] = at
            self._report("kafka", reason)
            self._seek(region, at)


def _places(regions: Iterable[Region], at: Positions | None = None) -> list[TopicPartition]:
    return [TopicPartition(r.topic, r.partition, OFFSET_INVALID if at is None else at[r]) for r in regions]


def _by_topic(messages: Sequence[Message]) -> dict[str, list[Message]]:
    found: dict[str, list[Message]] = {}
    for message in messages:
        found.setdefault(TOPIC(message), []).append(message)
    return found


def _asked(ask: Callable[[str, Collection[int]], Mapping[int, T]], regions: Collection[Region]) -> dict[Region, T]:
    """Return the answer for each region; ``ask`` answers for one topic and some of its partitions."""
    found: dict[Region, T] = {}
    for topic, of_topic in groupby(regions, attrgetter("topic")):
        numbered = {region.partition: region for region in of_topic}
        found |= {numbered[number]: answer for number, answer in ask(topic, numbered).items()}
    return found


def _unreleased(error: KafkaError) -> bool:
    # For a fatal error only the text says which error caused it.
    return error.code() == KafkaError.UNRELEASED_INSTANCE_ID or (
        error.code() == KafkaError._FATAL and _UNRELEASED in error.str()
    )


def _from(records: Records, position: Position) -> Records:
    """Return the records at or after ``position``."""
    return records.part(bisect_left(records.offsets, position), None)
