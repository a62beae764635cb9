"""The deployment as a state machine on a stage: what fails shrinks to the few acts that it takes.

An act of one process may be put before a call of another one (``interrupt``), so that interleavings shrink too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lancewal_core.errors import MergedPositionUnknown, ObjectMissing, PlanRetriesExhausted, TableRestored, VersionGone
from lancewal_core.table.control import Service, read_control
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from tests.simulation.checker import require
from tests.simulation.operating import resume_everything
from tests.simulation.rest import check_restored
from tests.simulation.settings import USER_KEYS
from tests.simulation.stage import Member, Stage
from tests.simulation.user import clean_up
from tests.simulation.world import PASSING
from tests.support.pauses import pause, resume
from tests.twins.faults import CommitFault, ListFault, PutFault

PARTITIONS = 2
MEMBERS = ["m0", "m1", "m2"]
FLUSHERS = ["f0", "f1"]
SOMEBODY = st.sampled_from([*MEMBERS, *FLUSHERS, "collector", "reader"])
PLACES = [("get", "wal/"), ("put", "wal/"), ("put", "/pages/"), ("get", "/pages/"), ("commit", "table"), ("at", "table"),
          ("list", ""), ("delete", ""), ("kafka", "broker")]  # fmt: skip

Fault = tuple[str, PutFault] | CommitFault | ListFault | str
FAULTS: list[Fault] = [
    *((key, fault) for key in ("wal/", "") for fault in list(PutFault)[1:]),
    *list(CommitFault)[1:],
    *ListFault,
    *("get", "list", "scan", "newest", "kafka", "write rows"),
]
"""Of the next put of such a key; of the next commit; of all listings from now on; of the next call."""


class Deployment(RuleBasedStateMachine):
    """Three members, two flushers, a collector, a reader and a user."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(PARTITIONS)
        self.members: dict[str, Member] = {name: self.stage.member(name) for name in MEMBERS}
        self.flushers = {name: self.stage.flusher(name) for name in FLUSHERS}
        self.collector = self.stage.flusher("collector")
        self.garbage = GarbageState()
        self.reader = self.stage.reader("reader")
        self.operating = self.stage.process("operator")
        self.busy: set[str] = set()
        self.frozen: dict[str, int] = {}
        """Turns that a member still stands still."""
        self.turn = 0
        self.user_key = USER_KEYS
        for partition in range(PARTITIONS):
            self.stage.give(self.members["m0"], partition)
        self._act("m0")

    # -- what processes do ---------------------------------------------------------------------------------------

    def _act(self, name: str) -> None:
        """One act of a process, unless it is in the middle of one."""
        self._alone(name, self._call(name))

    def _alone(self, name: str, call: Callable[[], object]) -> None:
        if name in self.busy:
            return
        self.busy.add(name)
        try:
            with suppress(*PASSING, VersionGone, ObjectMissing, MergedPositionUnknown, PlanRetriesExhausted):
                call()
        except TableRestored:
            require(self.stage.restored is not None, f"{name}: nobody has restored the table")
        finally:
            self.busy.discard(name)

    def _seal(self, name: str) -> None:
        self._alone(name, lambda: self.stage.seal(self.members[name]))

    def _call(self, name: str) -> Callable[[], object]:
        stage = self.stage
        if name in self.members:
            return lambda: self._step(self.members[name])
        if name == "reader":
            return lambda: self.reader.read("strong")
        if self._paused(Service.FLUSHER):
            return lambda: None
        if name in self.flushers:
            return lambda: stage.round(self.flushers[name])
        return lambda: collect_garbage(self.collector, self.garbage)

    def _step(self, member: Member) -> None:
        held, before = self._paused(Service.INGEST), member.source.delivered
        member.worker.hold(held)
        self.stage.step(member)
        require(not held or member.source.delivered == before, "it consumes, though it is paused:", member.process.name)

    def _paused(self, service: Service) -> bool:
        control = read_control(self.stage.checker.store, self.stage.contract.making)
        return control.paused(service, self.operating.clock.now_ms()) is not None

    @rule(name=SOMEBODY, times=st.integers(1, 3))
    def act(self, name: str, times: int) -> None:
        for _ in range(times):
            self._act(name)

    @rule(
        name=SOMEBODY, place=st.sampled_from(PLACES), other=SOMEBODY, times=st.integers(1, 4), passing=st.integers(1, 3)
    )
    def interrupt(self, name: str, place: tuple[str, str], other: str, times: int, passing: int) -> None:
        """The next time that ``name`` comes to this place, ``other`` acts first."""

        def act() -> None:
            for _ in range(times):
                self._act(other)

        self.stage.faults_of(name).before(*place, act, passing)

    @rule(partition=st.integers(0, PARTITIONS - 1), records=st.integers(1, 15), markers=st.sampled_from([0, 2]))
    def produce(self, partition: int, records: int, markers: int) -> None:
        self.stage.send(partition, records, markers)

    @rule(name=st.sampled_from(FLUSHERS), times=st.integers(1, 2))
    def merge(self, name: str, times: int) -> None:
        """Whatever is open is sealed, and merged."""
        for member in MEMBERS:
            if not self.frozen.get(member):
                self._seal(member)
        for _ in range(times):
            self._act(name)

    @rule()
    def trim(self) -> None:
        """Two rounds, with the history window and the grace period between them."""
        for _ in range(2):
            self.stage.scheduler.now += 5.0
            self._act("collector")

    @rule(partition=st.integers(0, PARTITIONS - 1), name=st.sampled_from(MEMBERS))
    def rebalance(self, partition: int, name: str) -> None:
        self.stage.give(self.members[name], partition)

    @rule(name=st.sampled_from(MEMBERS), heir=st.sampled_from(MEMBERS), turns=st.integers(1, 6))
    def pause(self, name: str, heir: str, turns: int) -> None:
        """The member stands still until its session times out; it does not know when it goes on."""
        self.frozen[name] = turns
        self._expel(name, heir)

    @rule(name=st.sampled_from(MEMBERS), heir=st.sampled_from(MEMBERS))
    def crash(self, name: str, heir: str) -> None:
        self._expel(name, heir)
        self.stage.faults_of(name).clear()
        self.members[name] = self.stage.member(name)

    def _expel(self, name: str, heir: str) -> None:
        group, session = self.stage.group, self.members[name].process.name
        given = [p for p, owner in group.target.items() if owner == session]
        group.expel(session)
        if name != heir:
            self.stage.give(self.members[heir], *given)

    @rule(seconds=st.sampled_from([1.0, 6.0, 4_000.0]))
    def wait(self, seconds: float) -> None:
        self.stage.scheduler.now += seconds

    @rule(name=SOMEBODY, fault=st.sampled_from(FAULTS))
    def fail(self, name: str, fault: Fault) -> None:
        """Something goes wrong for a process the next time that it can."""
        script = self.stage.faults_of(name)
        match fault:
            case (str(), PutFault()):
                script.puts.append(fault)
            case CommitFault():
                script.commits.append(fault)
            case ListFault():
                script.listings[""] = fault
            case str():
                script.down.append((fault, ""))

    @rule(partition=st.integers(0, PARTITIONS - 1), left=st.integers(0, 3))
    def retention(self, partition: int, left: int) -> None:
        """Kafka removes what is durable, but for some positions."""
        log = self.stage.topic.partitions[partition]
        log.low = max(log.low, self.stage.acknowledged.get(partition, 0) - left)

    @rule(service=st.sampled_from(Service), act=st.sampled_from(["pause", "pause for a while", "resume"]))
    def operator(self, service: Service, act: str) -> None:
        store, process, making = self.stage.checker.store, self.operating, self.stage.contract.making
        if act == "resume":
            resume(store, process.clock, process.new_id, service, making)
        else:
            pause(store, process.clock, process.new_id, service, making, None if act == "pause" else 3.0)

    @precondition(lambda self: self.turn > 20 and self.stage.restored is None)
    @rule(back=st.integers(1, 5))
    def restore(self, back: int) -> None:
        """The end: from now on nothing is merged, and nobody reads."""
        versions = sorted(self.stage.dataset.versions)
        if len(versions) > back:
            self.stage.restored = self.stage.checker.table.restore(versions[-1 - back])

    @precondition(lambda self: self.stage.restored is None)
    @rule(act=st.sampled_from(["append", "append a key of the topic", "index", "compact", "clean up"]),
          keep=st.integers(1, 3))  # fmt: skip
    def user(self, act: str, keep: int) -> None:
        table = self.stage.checker.table
        match act:
            case "append":
                self.stage.user_appends(self.user_key)
                self.user_key += 1
            case "append a key of the topic":
                records = self.stage.topic.partitions[keep % PARTITIONS].records
                if records:
                    self.stage.user_appends(records[-1].k)
            case "index":
                table.create_index()
            case "compact":
                table.compact([f.fragment_id for f in table.newest().fragments()[keep:]])
            case _:
                clean_up(self.stage, keep)

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def time_goes_on(self) -> None:
        """After each rule a turn for everyone, then a look at the whole: rules are what disturbs the normal course."""
        self.turn += 1
        self.stage.send(self.turn % PARTITIONS)
        for name in MEMBERS:
            self.frozen[name] = max(self.frozen.get(name, 0) - 1, 0)
            if not self.frozen[name]:
                self._act(name)
        if self.turn % 4 == 0:
            self.merge(FLUSHERS[self.turn % len(FLUSHERS)], 1)
        self._act("reader")
        self.stage.checker.check(self.stage.acknowledged)

    def teardown(self) -> None:
        """Without faults everything that was produced becomes durable, then merged."""
        stage = self.stage
        for script in stage.scripts.values():
            script.clear()
        resume_everything(stage)
        ends = {p: log.end for p, log in enumerate(stage.topic.partitions)}
        for _ in range(60):
            for partition, owner in stage.group.target.items():
                if owner not in stage.group.members:
                    stage.give(self.members["m0"], partition)
            for name in MEMBERS:
                self._act(name)
            if all(stage.acknowledged.get(p, 0) >= n for p, n in ends.items()):
                break
        require(
            all(stage.acknowledged.get(p, 0) >= n for p, n in ends.items()), "not durable:", stage.acknowledged, ends
        )
        stopped = {name: member.worker.stopped for name, member in self.members.items() if member.worker.stopped}
        require(not stopped, "stopped:", stopped)
        for name in MEMBERS:
            stage.seal(self.members[name])
        if stage.restored is not None:
            check_restored(stage, stage.restored)
            return
        for _ in range(4):
            stage.round(self.flushers["f0"])
        stage.check()
        stage.check_table()
        merged = self.flushers["f0"].watermarks.newest()[1]
        behind = {p: n for p, n in ends.items() if (merged.position(stage.region(p)) or 0) < n}
        require(not behind, "not merged:", behind, merged)


TestDeployment = Deployment.TestCase
TestDeployment.settings = settings(
    max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
