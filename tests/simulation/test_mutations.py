"""The simulation finds what it must: each safeguard taken away breaks an invariant within some seeds."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

import lancewal_flusher.commit
import lancewal_flusher.finish
import lancewal_flusher.merge
import lancewal_ingest.open_region
import lancewal_ingest.seal
import lancewal_reader.plan
from lancewal_core.ids import Position
from lancewal_core.log import Walk, walk
from lancewal_core.segment import Fence
from lancewal_ingest.worker import IngestWorker
from tests.simulation.run import SimulationFailed, run
from tests.simulation.world import Settings

MEMBERS = Settings(members=3, flushers=0, collectors=0, readers=0, user=False)
WHOLE = Settings(user=False)


def _found(settings: Settings, seeds: range) -> str:
    """What the first failing seed says."""
    for seed in seeds:
        try:
            run(seed, settings)
        except SimulationFailed as error:
            return f"{error} {error.__cause__}"
    pytest.fail(f"no seed of {seeds} finds it")


def test_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_log(store: Any, tasks: Any, clock: Any, log: Any, start: Any, writer: Any, region: Any) -> Any:
        walked = walk(store, tasks, log, start, regions=(region,))
        return Walk(log, walked.segments, walked.end, walked.fence or Fence(log, walked.end, writer, clock.now_ms()))

    monkeypatch.setattr(lancewal_ingest.open_region, "end_log", end_log)
    # Few regions, so that a frozen member and its successor meet in the same log soon.
    assert "acknowledged" in _found(replace(MEMBERS, members=2, partitions=2), range(200))


def test_seal_while_a_segment_is_unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    start_job = IngestWorker._start_job

    def start_and_seal(worker: IngestWorker, *, now: bool = False) -> None:
        start_job(worker, now=now)
        worker._seal_due()

    monkeypatch.setattr(lancewal_ingest.seal, "_check_settled", lambda writer: None)
    monkeypatch.setattr(IngestWorker, "_start_job", start_and_seal)
    _found(MEMBERS, range(100))


class _Joins(int):
    """A position that no check finds out of place."""

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _slow_readers(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Readers often take seconds between an index and the log that it names."""
    walk_logs = lancewal_reader.plan._walk_logs
    rng = Random(1)

    def slowly(context: Any, above: Any) -> Any:
        context.clock.sleep(rng.choice([0.0, 1.0, 4.0]))
        return walk_logs(context, above)

    monkeypatch.setattr(lancewal_reader.plan, "_walk_logs", slowly)
    return replace(WHOLE, readers=3, history_window_s=0, grace_s=0)


def test_slow_readers_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _slow_readers(monkeypatch)
    reports = [run(seed, settings) for seed in range(4)]
    assert sum(report.counts["strong read"] for report in reports) > 20


def test_no_proof_of_the_end_of_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _slow_readers(monkeypatch)
    monkeypatch.setattr(lancewal_reader.plan, "_prove_ends", lambda context, above, walks: None)
    assert "I1 reader" in _found(settings, range(100))


def test_joining_over_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _slow_readers(monkeypatch)
    entries = lancewal_reader.plan.entry_refs

    def joined(region: Any, record: Any, walked: Any) -> Any:
        found = entries(region, record, walked)
        return [replace(ref, first=Position(_Joins(ref.first)), next=Position(_Joins(ref.next))) for ref in found]

    monkeypatch.setattr(lancewal_reader.plan, "entry_refs", joined)
    assert "I2 reader" in _found(settings, range(100))


def test_no_sentinel(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lancewal_flusher.commit, lancewal_flusher.finish, lancewal_flusher.merge):
        monkeypatch.setattr(module, "sentinel", lambda fragments: None)
        monkeypatch.setattr(module, "prove", lambda *arguments: None, raising=False)
    assert "a key shows twice" in _found(replace(WHOLE, flushers=3), range(100))
