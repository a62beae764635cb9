"""A whole life of a table, and a crash at each named point of the protocol, before and after it: all ends well.

The life passes every point.  Whoever dies is replaced by a process that knows nothing, which does the same again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

import pytest

from lancewal_core.process import failpoints
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.schema import Op
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageState
from tests.simulation.column_changes import Change, change_columns
from tests.simulation.oracle import Record
from tests.simulation.script import Crashed
from tests.simulation.stage import Member, Stage
from tests.simulation.swarm import PLACES

EVERY = (
    *PLACES,
    *(f"{name} {when}" for name in ("columns.bring", "columns.grow", "contract.put") for when in ("before", "after")),
)
"""A widening is another part's: ``tests/flusher/upkeep/test_widening.py``."""

T = TypeVar("T")


class _CrashOnce(failpoints.Failpoints):
    def __init__(self, place: str | None) -> None:
        super().__init__((), None)
        self.place = place
        self.passed: set[str] = set()

    def passing(self, name: str, when: failpoints.When, where: Mapping[str, object]) -> None:
        here = f"{name} {when}"
        self.passed.add(here)
        if here == self.place:
            self.place = None
            raise Crashed(here)


class _Life:
    def __init__(self) -> None:
        self.stage = Stage(history_window_s=1, columns_change=True)
        self.names = iter(f"p{number}" for number in range(100))
        self.owner = self.member(0, 1)
        self.other = self.member()
        self.flushing = next(self.names)
        self.flusher = self.stage.flusher(self.flushing)

    def member(self, *partitions: int) -> Member:
        made = self.stage.member(next(self.names))
        self.stage.give(made, *partitions)
        try:
            self.stage.step(made, 2)
        except Crashed:
            return self.heir(made)
        return made

    def heir(self, dead: Member) -> Member:
        given = [p for p, owner in self.stage.group.target.items() if owner == dead.process.name]
        self.stage.group.expel(dead.process.name)
        return self.member(*given)

    def ingest(self, call: Callable[[Member], object], name: str = "owner") -> None:
        """An act of a member, begun again by its heir."""
        try:
            call(getattr(self, name))
        except Crashed:
            setattr(self, name, self.heir(getattr(self, name)))
            call(getattr(self, name))

    def flush(self, call: Callable[[FlusherContext], T]) -> T:
        try:
            return call(self.flusher)
        except Crashed:
            self.flushing = next(self.names)
            self.flusher = self.stage.flusher(self.flushing)
            return call(self.flusher)

    def command(self, change: Change) -> None:
        """Somebody changes columns, and runs the command again if it dies."""
        for _ in range(2):
            with suppress(Crashed):
                change_columns(self.stage.process(next(self.names)), change)
                return
        raise AssertionError("the command died twice")

    def record(self, partition: int, k: int, values: Mapping[str, object] | None, op: Op | None) -> None:
        """A record of the topic; None for values: bytes that are no row."""
        value = b"{" if values is None else json.dumps({"k": k, **values}).encode()
        headers: list[tuple[str, bytes | None]] | None = [("lancewal.op", b"patch")] if op is Op.PATCH else None
        key = encode_region_key(k)
        self.stage.topic.append(partition, lambda offset: Record(offset, 0, key, value, headers, op, k, values or {}))

    def live(self) -> None:
        """See the module docstring."""
        stage = self.stage
        # Rows and a bad record become durable, are sealed and merged.
        (k, patched, _), _ = stage.send(0, 3), stage.send(1)
        self.record(0, k, None, None)
        self.ingest(lambda member: stage.step(member, 15))
        for _ in range(4):  # segments enough for a bundle
            self.ingest(lambda member: stage.append(member, 0))
        self.ingest(stage.seal)
        self.flush(stage.round)
        # Rows that are replaced and completed; a user appends a key of the merge meanwhile; the other region is idle.
        self.record(0, k, {"a": "again", "b": 1}, Op.UPSERT)
        self.record(0, patched, {"a": "patched"}, Op.PATCH)
        self.ingest(lambda member: stage.step(member, 3))
        self.ingest(stage.seal)
        stage.scripts[self.flushing].before("commit", "table", lambda: stage.user_appends(k))
        self.flush(stage.round)
        # A region is handed over; then its owner is taken for dead, and is not.
        stage.give(self.other, 0)
        self.ingest(lambda member: stage.step(member, 2))
        self.ingest(lambda member: stage.append(member, 0), "other")
        stage.group.expel(self.other.process.name)
        stage.give(self.owner, 0)
        self.ingest(lambda member: stage.step(member, 3))
        self.ingest(lambda member: stage.append(member, 0))
        # A column comes and goes.
        for change in (Change(add=("d",)), Change(drop=("d",))):
            self.command(change)
        # What is merged is trimmed.
        self.ingest(stage.seal)
        self.flush(stage.round)
        garbage = GarbageState()
        for _ in range(2):
            self.flush(lambda flusher: stage.collect(flusher, garbage))


@contextmanager
def _crash_at(place: str | None) -> Iterator[_CrashOnce]:
    before, failpoints._active = failpoints._active, _CrashOnce(place)
    try:
        yield failpoints._active
    finally:
        failpoints._active = before


def _read(life: _Life) -> None:
    try:
        life.stage.reader("reader").read("strong")
    except Crashed:
        life.stage.reader("another").read("strong")


def test_a_life_passes_every_point() -> None:
    with _crash_at(None) as passed:
        life = _Life()
        life.live()
        _read(life)
    life.stage.check()
    assert passed.passed == set(EVERY)


@pytest.mark.parametrize("place", EVERY)
def test_crash_at(place: str) -> None:
    with _crash_at(place) as crash:
        life = _Life()
        life.live()
        _read(life)
    assert crash.place is None, f"nobody died at {place}"
    ends = {p: log.end for p, log in enumerate(life.stage.topic.partitions)}
    assert {p: n for p, n in ends.items() if life.stage.acknowledged[p] < n} == {}
    life.stage.check()
    life.stage.check_table()
