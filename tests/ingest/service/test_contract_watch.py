"""A process at work takes up what decides no row, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from lancewal_core.errors import FormerGroup, OtherGroup, TopicMissing
from lancewal_core.names import paths
from lancewal_core.process.tasks import Task
from lancewal_core.store.object_store import Stored
from lancewal_core.table.contract import Contract, encode_contract
from lancewal_ingest.service.contract_watch import POLL_S, ContractWatch
from tests.ingest.service.test_worker import AtOnce, Ended, Place

T = TypeVar("T")


class ToldToRun(AtOnce):
    """Tasks that run when they are started, or, ``slow``, when told to."""

    def __init__(self) -> None:
        self.slow = False
        self.waiting: list[Slow] = []

    def start(self, call: Callable[[], T]) -> Task[T]:
        if not self.slow:
            return super().start(call)
        self.waiting.append(Slow(call))
        return self.waiting[-1]  # type: ignore[return-value] # what it holds is what the call returned


class Slow:
    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._ended: Ended | None = None

    def run(self) -> None:
        self._ended = Ended(self._call)

    def wait(self, timeout_s: float) -> None: ...

    def done(self) -> bool:
        return self._ended is not None

    def result(self) -> object:
        assert self._ended is not None
        return self._ended.result()


class Watched:
    def __init__(self) -> None:
        self.place = Place()
        self.prepared: list[Contract] = []
        self.taken: list[Contract] = []
        self.tasks = ToldToRun()
        self.failed: list[str] = []
        self.error: TopicMissing | None = None
        self.newest = self.place.contract
        self.watch = ContractWatch(
            self.place.store,
            self.newest,
            self.tasks,
            self.place.clock,
            self._prepare,
            lambda act, _: self.failed.append(act),
            "ours",
        )

    def _prepare(self, contract: Contract) -> Callable[[], None]:
        if self.error is not None:
            raise self.error
        self.prepared.append(contract)
        return lambda: self.taken.append(contract)

    def alter(self, **terms: object) -> Contract:
        self.newest = self.newest.model_copy(update={"version": self.newest.version + 1, **terms})
        put = self.place.store.put_if_absent(
            paths.contract_version(self.newest.version, None), encode_contract(self.newest)
        )
        assert isinstance(put, Stored)
        return self.newest

    def look(self) -> None:
        self.place.clock.sleep(POLL_S)
        for _ in range(2):  # it asks, and hears
            self.watch.look()


def test_the_newest_version_is_taken_up_once() -> None:
    watched = Watched()
    watched.look()
    assert watched.taken == []
    watched.alter(on_bad_record="dead-letter")
    newest = watched.alter(on_misrouted="ignore", history_window_s=5)
    watched.watch.look()
    assert watched.taken == [], "before its time"
    watched.look()
    watched.look()
    assert watched.taken == [newest]
    again = watched.alter(on_misrouted="stop")
    watched.look()
    assert watched.taken == [newest, again]


@pytest.mark.parametrize("terms", [{"topic_id": "another"}, {"partitions": 2}, {"record_bytes_max": 5}])
def test_what_decides_rows_is_not_taken_up(terms: dict[str, object]) -> None:
    watched = Watched()
    watched.alter(on_misrouted="ignore", **terms)
    watched.look()
    assert (watched.taken, watched.watch.problem) == ([], None)


def test_what_cannot_be_taken_up_is_told_and_tried_again() -> None:
    watched = Watched()
    newest = watched.alter(on_bad_record="dead-letter")
    watched.error = TopicMissing("the dead-letter topic 'x' does not exist", topic="x")
    watched.look()
    assert watched.failed == ["contract"]
    problem = watched.watch.problem
    assert problem is not None
    assert (problem.kind, problem.message) == (
        "topic_missing",
        "this process does not follow the newest contract version yet: the dead-letter topic 'x' does not exist",
    )
    watched.error = None
    watched.look()
    assert watched.taken == [newest]
    assert watched.watch.problem is None


def test_what_a_version_needs_is_made_ready_beside_the_loop() -> None:
    """Kafka may take its time to answer for a topic of dead letters: the loop turns meanwhile, and then swaps."""
    watched = Watched()
    watched.tasks.slow = True
    newest = watched.alter(on_bad_record="dead-letter")
    watched.look()
    assert (watched.prepared, watched.taken) == ([], [])
    (asked,) = watched.tasks.waiting
    asked.run()
    assert (watched.prepared, watched.taken) == ([newest], [])
    watched.watch.look()
    assert (watched.prepared, watched.taken) == ([newest], [newest])


@pytest.mark.parametrize(("former", "error"), [("ours", FormerGroup), ("another", OtherGroup)])
def test_another_group_ends_the_work(former: str, error: type[Exception]) -> None:
    watched = Watched()
    watched.alter(group_id="ours")
    watched.look()
    watched.alter(group_id="theirs", former_group_id=former, topic_id="another")  # whatever else was altered
    watched.place.clock.sleep(POLL_S)
    watched.watch.look()
    with pytest.raises(error):
        watched.watch.look()
    assert watched.failed == []
