"""How far a merge is: a line now and then, none for a short one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.tasks.progress import PROGRESS_S, TaskProgress, Work, step_of
from lancewal_flusher.tasks.runner import ThreadRunner
from tests.support.scripted import InlineTasks, ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_line_now_and_then(clock: ManualClock) -> None:
    with capture_logs() as lines, step_of(Work.COMPACTION, 40) as step:
        progress = TaskProgress(clock, FlusherEvents(), Work.COMPACTION, "spark", 40, step)
        for _ in range(4):
            progress.one_done()
            clock.seconds += PROGRESS_S / 2
        progress.share_done(1, 2)
        clock.seconds += PROGRESS_S
        progress.share_done(1, 4)  # late news
        progress.share_done(0, 0)  # nothing is known
    assert [(line["done_tasks"], line["tasks"], line["duration_s"]) for line in lines] == [
        (3, 40, 5.0),
        (20, 40, 10.0),
        (20, 40, 15.0),
    ]
    assert {(line["event"], line["operation"]) for line in lines} == {("tasks_progressed", "compaction")}


def test_threads_show_it_too(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        clock.seconds += PROGRESS_S

    monkeypatch.setattr("lancewal_flusher.tasks.runner.run_on", run)
    table: Any = SimpleNamespace(opened=lambda _: None)
    tasks: list[Any] = [SimpleNamespace(version=1, source=None)] * 3
    with capture_logs() as lines:
        ThreadRunner(table, InlineTasks(), clock).run(tasks)
    assert [(line["operation"], line["runner"], line["done_tasks"]) for line in lines] == [
        ("merge", "threads", done) for done in (1, 2, 3)
    ]
