"""The first records of a partition: of another format, or all bad of one kind, across a change of owner."""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core.errors import WrongFormat
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import Op
from tests.simulation.checker import require
from tests.simulation.oracle import Record
from tests.simulation.stage import Member, Stage

FRAMED = b"\x00\x00\x00\x00\x07\x02a"
"""A value as a schema registry's client writes it."""
NO_JSON = b"{"


class FirstRows(Stage):
    """A stage whose partition 0 gets values that give no row."""

    @property
    def k(self) -> int:
        """A key of the partition."""
        return next(k for k in range(100) if partition_of(encode_region_key(k), self.settings.partitions) == 0)

    def sends(self, value: bytes, times: int = 1) -> None:
        k = self.k
        for _ in range(times):
            self.topic.append(0, lambda offset: Record(offset, 0, encode_region_key(k), value, None, None, k, {}))

    def deletes(self) -> None:
        """A record without a value."""
        k = self.k
        key = encode_region_key(k)
        self.topic.append(0, lambda offset: Record(offset, 0, key, None, None, Op.DELETE, k, {"k": k}))

    def has_stopped(self, member: Member, offset: int) -> None:
        """The partition stopped right before this record, and all before it are dead letters."""
        self.step(member, 20)
        found = member.worker.stopped.get(self.region(0))
        require(isinstance(found, WrongFormat), "stopped by", found)
        require(found is not None and found.where["offset"] == offset, "stopped at", found)
        self.is_durable(offset)

    def is_durable(self, end: int) -> None:
        require(self.acknowledged.get(0, 0) == end, "durable up to", self.acknowledged, "of", end)
        letters = {r.offset for r in self.topic.partitions[0].between(0, end) if r.op is None}
        require(self.checker.rejected.get(0, set()) == letters, "dead letters:", self.checker.rejected)
        self.checker.check(self.acknowledged)


def another_format_stops_each_owner() -> None:
    """The topic is of another format: A stops before its first record, so does its heir after a crash, and its own heir after
    a hand-over.  Once a person has decided, the partition goes on."""
    stage = FirstRows()
    stage.sends(FRAMED, 3)
    a, b, c = stage.member("a", 0, 1), stage.member("b"), stage.member("c")
    stage.has_stopped(a, 0)
    stage.take_over(a, b, 0)
    stage.has_stopped(b, 0)
    stage.give(c, 0)
    stage.step(b, 2)
    stage.step(c, 2)
    stage.has_stopped(c, 0)
    stage.alter(format=2, on_wrong_format="dead-letter")
    stage.take_up(c)
    stage.step(c, 4)
    stage.is_durable(3)


def records_of_a_dead_owner_count() -> None:
    """A dies with 60 bad records in its log, and no state says so.  Its heir stops at the hundredth record, not later."""
    stage = FirstRows()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.sends(NO_JSON, 60)
    stage.step(a, 20)
    stage.is_durable(60)
    stage.sends(NO_JSON, 60)
    stage.take_over(a, b, 0)
    stage.has_stopped(b, 99)


def records_of_sealed_generations_count() -> None:
    """60 bad records are sealed and flushed when A hands its partition over: its heir stops at the hundredth record."""
    stage = FirstRows()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.sends(NO_JSON, 60)
    stage.step(a, 20)
    stage.seal(a)
    stage.give(b, 0)
    stage.step(a, 2)
    stage.step(b, 2)
    stage.sends(NO_JSON, 60)
    stage.has_stopped(b, 99)


def deletes_are_no_rows() -> None:
    """A topic of another format that was compacted begins with deletes without a value.  A dies with one in its log, and
    another lies in a sealed generation: its heirs still stop before the first value."""
    stage = FirstRows()
    a, b, c = stage.member("a", 0, 1), stage.member("b"), stage.member("c")
    stage.deletes()
    stage.step(a, 20)
    stage.is_durable(1)
    stage.take_over(a, b, 0)
    stage.step(b, 4)
    stage.deletes()
    stage.step(b, 20)
    stage.seal(b)
    stage.sends(FRAMED, 3)
    stage.has_stopped(b, 2)
    stage.give(c, 0)
    stage.step(b, 2)
    stage.step(c, 2)
    stage.has_stopped(c, 2)


def a_row_of_a_dead_owner_counts() -> None:
    """A dies with the partition's first row in its log, and no state says so.  The partition is at work: its heir makes a
    dead letter of a stray record."""
    stage = FirstRows()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.sends(FRAMED)
    stage.take_over(a, b, 0)
    stage.append(b, 0)
    stage.step(b, 2)
    require(not b.worker.stopped, "stopped:", b.worker.stopped)
    stage.is_durable(3)


def a_row_of_sealed_generations_counts() -> None:
    """The only row was sealed, merged and trimmed before a stray record comes."""
    stage = FirstRows()
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    stage.append_and_seal(a, 0)
    stage.round(f)
    stage.collect(f)
    stage.sends(FRAMED)
    stage.take_over(a, b, 0)
    stage.append(b, 0)
    stage.step(b, 2)
    require(not b.worker.stopped, "stopped:", b.worker.stopped)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    another_format_stops_each_owner: ("first records stop nothing", "stopped by"),
    records_of_a_dead_owner_count: ("a claim counts no records", "bad records, not as in"),
    records_of_sealed_generations_count: ("a seal counts no records", "bad records, not as in"),
    deletes_are_no_rows: ("deletes count as rows", "stopped by"),
    a_row_of_a_dead_owner_counts: ("a claim counts no records", "knows of none"),
    a_row_of_sealed_generations_counts: ("a seal counts no records", "knows of none"),
}
