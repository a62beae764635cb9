"""Events of a connector: what compaction leaves of deletes, keys that change, events that come twice, and what is no row."""

from __future__ import annotations

import json
from collections.abc import Callable

from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import Op
from tests.simulation import oracle
from tests.simulation.checker import require
from tests.simulation.stage import Member, Stage
from tests.support.regions import by_number
from tests.twins.sim_clock import EPOCH_MS

_TOMBSTONES_S = 1000.0


class EventStage(Stage):
    """A stage whose topic has Debezium's events, with keys as Kafka Connect writes them."""

    def __init__(self) -> None:
        super().__init__(key_format="json-compact")
        self.alter(format=2, envelope="debezium")
        self.topic.tombstones_s = _TOMBSTONES_S

    def upsert(self, k: int, a: str) -> None:
        row = {"k": k, "a": a, "b": None}
        self._send(k, {"op": "u", "before": None, "after": row}, Op.UPSERT, {"a": a, "b": None})

    def update(self, k: int, b: int) -> None:
        """An update that leaves ``a`` out, since it did not change."""
        row = {"k": k, "a": "__debezium_unavailable_value", "b": b}
        self._send(k, {"op": "u", "before": None, "after": row}, Op.PATCH, {"b": b})

    def delete(self, k: int) -> None:
        """An event, whose old row has a default in place of a value."""
        self._send(k, {"op": "d", "before": {"k": k, "a": "default", "b": 7}, "after": None}, Op.DELETE, {})

    def tombstone(self, k: int) -> None:
        self._send(k, None, Op.DELETE, {})

    def heartbeat(self, partition: int, key: bytes) -> None:
        """A record that is no row, in any partition."""
        self.topic.append(
            partition,
            lambda offset: oracle.Record(
                offset, self._now_ms, key, b'{"ts_ms":1}', None, None, -1, {}, passed_over=True
            ),
        )

    def _send(self, k: int, event: dict[str, object] | None, op: Op, values: oracle.Values) -> None:
        key, now_ms = key_of(k), self._now_ms
        value = None if event is None else json.dumps({**event, "source": {"lsn": 1}}).encode()
        self.topic.append(
            partition_of(key, 2), lambda offset: oracle.Record(offset, now_ms, key, value, None, op, k, values)
        )

    @property
    def _now_ms(self) -> int:
        return EPOCH_MS + int(self.scheduler.now * 1000)

    def clean(self) -> None:
        """Compaction leaves the newest record of each key."""
        for partition in self.topic.partitions:
            partition.clean(0)

    def is_durable(self, member: Member) -> None:
        self.step(member, 4)
        require(not member.worker.stopped, "stopped:", member.worker.stopped)
        ends = {number: partition.high for number, partition in enumerate(self.topic.partitions)}
        require(by_number(member.worker.durable) == ends, "durable up to", member.worker.durable, "of", ends)
        self.check()


def key_of(k: int) -> bytes:
    return b'{"k":%d}' % k


def _keys(partition: int) -> list[int]:
    return [k for k in range(100) if partition_of(key_of(k), 2) == partition]


def compaction_leaves_a_tombstone_alone() -> None:
    """The row is in the table when its delete comes.  Compaction removes the event, before anybody has read it."""
    stage = EventStage()
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    k, other, *_ = _keys(0)
    stage.upsert(k, "x")
    stage.upsert(other, "y")
    stage.is_durable(a)
    stage.seal(a)
    stage.round(f)
    stage.delete(k)
    stage.tombstone(k)
    stage.upsert(other, "z")
    stage.clean()
    stage.take_over(a, b, 0, 1)
    stage.is_durable(b)
    stage.seal(b)
    stage.round(f)
    stage.check_table()


def heartbeats_lie_anywhere() -> None:
    """Their keys belong elsewhere, or there is none; an owner dies between them, and another reads them again."""
    stage = EventStage()
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    for partition in (0, 1):
        here, elsewhere = _keys(partition), _keys(1 - partition)
        stage.heartbeat(partition, key_of(elsewhere[0]))
        stage.upsert(here[0], "x")
        stage.heartbeat(partition, b"")
    stage.is_durable(a)
    for partition in (0, 1):
        stage.heartbeat(partition, key_of(_keys(1 - partition)[1]))
    stage.is_durable(a)
    stage.take_over(a, b, 0, 1)
    stage.heartbeat(0, b"")
    stage.delete(_keys(0)[0])
    stage.is_durable(b)
    stage.seal(b)
    stage.round(f)
    stage.check_table()


def a_key_changes_and_events_come_twice() -> None:
    """The old key is deleted in one partition, the new one made in another; then the connector repeats all of it."""
    stage = EventStage()
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    old, new = _keys(0)[0], _keys(1)[0]
    stage.upsert(old, "x")
    for turn, owner in enumerate((a, b)):
        stage.upsert(new, "x")
        if turn:
            stage.take_over(a, b, 0, 1)
        stage.is_durable(owner)
        stage.delete(old)
        stage.tombstone(old)
        stage.is_durable(owner)
        stage.seal(owner)
        stage.round(f)
        stage.check_table()


def a_value_is_left_out() -> None:
    """The row is unmerged, then in the table, then gone, when an update comes that lacks a value.  Owners die in between."""
    stage = EventStage()
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    k, gone, nowhere, *_ = _keys(0)
    for each in (k, gone):
        stage.upsert(each, "x")
    stage.update(k, 1)
    stage.is_durable(a)
    stage.seal(a)
    stage.update(k, 2)
    stage.update(nowhere, 3)
    stage.is_durable(a)
    stage.round(f)
    stage.check_table()
    stage.take_over(a, b, 0, 1)
    stage.update(k, 4)
    stage.delete(gone)
    stage.update(gone, 5)
    stage.is_durable(b)
    stage.seal(b)
    stage.round(f)
    stage.check_table()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    compaction_leaves_a_tombstone_alone: ("a tombstone is passed over", "holds"),
    heartbeats_lie_anywhere: ("what is passed over is asked for its partition", "stopped"),
    a_value_is_left_out: ("a placeholder is stored", "holds"),
}

ACCIDENTS: list[Callable[[], None]] = [a_key_changes_and_events_come_twice]
