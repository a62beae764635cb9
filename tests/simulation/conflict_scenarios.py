"""One producer sends many keys through two partitions of a topic that others key: nobody else waits for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from lancewal_core.keys.conflicts import read_conflicts
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.merge.settle import settle
from lancewal_flusher.service.round import RoundReport, RoundState, run_round
from lancewal_ingest.service.conflict_watch import POLL_S, ConflictWatch
from tests.simulation import oracle
from tests.simulation.checker import require
from tests.simulation.stage import Member, Stage
from tests.support.regions import by_number
from tests.twins.sim_clock import EPOCH_MS

_FEW = 2
_ROOM = MergeLimits(conflict_keys_max=6)


def _send(stage: Stage, partition: int, keys: Sequence[int]) -> None:
    """Keyed by something that the primary key does not determine."""
    record_key = next(key for key in map(encode_region_key, range(100)) if partition_of(key, 3) == partition)
    now_ms = EPOCH_MS + int(stage.scheduler.now * 1000)

    def make(k: int) -> Callable[[int], oracle.Record]:
        return lambda offset: oracle.upsert(offset, now_ms, record_key, k)

    for k in keys:
        stage.topic.append(partition, make(k), 0, 0)


def _merged(stage: Stage) -> list[int]:
    in_force = stage.process("audience").watermarks.newest()[1]
    return [int(in_force.position(stage.region(partition)) or 0) for partition in range(3)]


def _round(stage: Stage) -> RoundReport:
    return run_round(stage.flusher("f"), _ROOM, RoundState(), sealed_grace_s=0.0)


def _told(stage: Stage, a: Member, watch: ConflictWatch) -> None:
    """What the store says is known."""
    stage.scheduler.now += POLL_S
    watch.look()
    watch.look()
    a.worker.stop_conflicting(watch.stopped)
    stage.step(a, 2)


def _begun() -> tuple[Stage, Member]:
    stage = Stage(partitions=3, key_format="bytes")
    a = stage.member("a", 0, 1, 2)
    _send(stage, 0, range(20))
    stage.step(a, 2)
    stage.seal(a)
    _round(stage)
    return stage, a


def too_many_keys_come_through_two_partitions() -> None:
    """More than there is room for: their partition is not merged, by name; the others are.  Decisions lead out, in turns."""
    stage, a = _begun()
    _send(stage, 1, range(5))
    _send(stage, 2, [30])
    stage.step(a, 2)
    stage.seal(a)
    _round(stage)
    _send(stage, 1, range(5, 10))
    _send(stage, 2, [31])
    stage.step(a, 2)
    stage.seal(a)
    report = _round(stage)
    require(set(report.held) == {stage.region(1)}, "held:", report.held)
    require(_merged(stage) == [20, 5, 2], "merged up to:", _merged(stage))
    for _ in range(2):
        f = stage.flusher("f")
        settle(f, stage.region(0), lambda held: held.waiting_keys)
        report = _round(stage)
    require(not report.held, "held:", report.held)
    require(_merged(stage) == [20, 10, 2], "merged up to:", _merged(stage))
    rows = {row["k"]: row["a"] for row in stage.rows_of(stage.dataset.newest.number)}
    expected = {**oracle.rows(stage.topic.partitions[0].records), **oracle.rows(stage.topic.partitions[2].records)}
    require(rows == {k: values["a"] for k, values in expected.items()}, "rows:", rows)


def ingest_learns_of_too_many_keys() -> None:
    """Beyond a few keys their partition takes no further records, until a person has decided; the others go on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lancewal_core.keys.conflicts.KEYS_FEW", _FEW)
        stage, a = _begun()
        watch = ConflictWatch(a.worker._context)
        _send(stage, 1, range(_FEW + 1))
        stage.step(a, 2)
        stage.seal(a)
        _round(stage)
        _told(stage, a, watch)
        for partition in range(3):
            _send(stage, partition, [50 + partition])
        stage.step(a, 4)
        require(by_number(a.worker.durable) == {0: 21, 1: _FEW + 1, 2: 1}, "I1 durable:", a.worker.durable)
        require(
            [error.kind for error in a.worker.stopped.values()] == ["region_conflict"], "stopped:", a.worker.stopped
        )
        f = stage.flusher("f")
        settle(f, stage.region(0), lambda held: held.waiting_keys)
        held = read_conflicts(f.store, f.watermarks.newest()[1].conflicts, stage.contract)
        require(held.owners.num_rows == _FEW + 1, "owners:", held.owners)
        _told(stage, a, watch)
        stage.step(a, 4)
        require(by_number(a.worker.durable) == {0: 21, 1: _FEW + 2, 2: 1}, "durable:", a.worker.durable)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    too_many_keys_come_through_two_partitions: ("too many keys in conflict end the merge", "came through partitions"),
    ingest_learns_of_too_many_keys: ("ingest goes on beside keys in conflict", "I1 durable"),
}
