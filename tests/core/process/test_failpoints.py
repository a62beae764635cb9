"""Failpoints: what they do to a process, in a process of its own; and that nobody meets one by accident."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.errors import InvalidSettings
from lancewal_core.process import failpoints
from lancewal_core.process.failpoints import (
    POINTS,
    Failpoint,
    FailpointError,
    configure,
    parse_failpoint,
    point,
    points,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    yield
    configure({})


def events(log: Path) -> list[tuple[str, str]]:
    return [(line["point"], line["when"]) for line in map(json.loads, log.read_text().splitlines())]


# -- parsing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(POINTS))
def test_every_point_can_be_named(name: str) -> None:
    assert parse_failpoint(f"{name}:before=kill") == Failpoint(name, "before", 1, "kill")
    assert parse_failpoint(f"{name}:after:12=error") == Failpoint(name, "after", 12, "error")


@pytest.mark.parametrize(
    "text",
    ["", "wal.put", "wal.put:before", "wal.put=kill", "wal.puts:before=kill", "wal.put:during=kill", "wal.put:before=die",
     "wal.put:before:0=kill", "wal.put:before:-1=kill", "wal.put:before:x=kill", "wal.put:before=kill,stop",
     " wal.put:before=kill"],
)  # fmt: skip
def test_anything_else_is_refused_and_the_points_are_listed(text: str) -> None:
    with pytest.raises(InvalidSettings, match=re.escape(repr(text))) as caught:
        parse_failpoint(text)
    assert all(name in str(caught.value) for name in POINTS)


def test_every_point_in_the_code_is_declared_and_every_declared_one_is_in_the_code() -> None:
    used: set[str] = set()
    for package in ("core", "ingest", "flusher", "reader", "tables"):
        for file in (ROOT / package).rglob("*.py"):
            for call in re.findall(r"\bpoints?\(\s*([^)]*?)[,)]", file.read_text()):
                used |= set(re.findall(r'"([a-z]+(?:\.[a-z]+)?)"', call))
    assert used == POINTS


# -- in this process ---------------------------------------------------------------------------------------------


def test_without_testing_a_failpoint_is_refused(tmp_path: Path) -> None:
    for testing in ({}, {"LANCEWAL_TESTING": "0"}, {"LANCEWAL_TESTING": "true"}):
        with pytest.raises(InvalidSettings, match="refused unless LANCEWAL_TESTING=1"):
            configure({"LANCEWAL_FAILPOINT": "wal.put:before=kill", **testing})
    with point("wal.put"):
        pass  # and none is in force


def test_many_that_take_a_step_together_pass_its_point_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "events"
    monkeypatch.setattr(failpoints, "_active", failpoints.Failpoints([], str(log)))
    with points("claim.cas", ({"region": name} for name in ("a", "b"))):
        assert [json.loads(line)["when"] for line in log.read_text().splitlines()] == ["before"] * 2
    passed = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted((line["when"], line["region"]) for line in passed) == [
        ("after", "a"), ("after", "b"), ("before", "a"), ("before", "b"),
    ]  # fmt: skip


def test_the_empty_text_means_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("LANCEWAL_EVENT_LOG", "LANCEWAL_FAILPOINT"):
        configure({name: ""})
        with point("wal.put"):
            pass
    assert not list(tmp_path.iterdir())


def test_a_refused_configuration_leaves_the_one_before(tmp_path: Path) -> None:
    log = tmp_path / "events"
    configure({"LANCEWAL_EVENT_LOG": str(log)})
    with pytest.raises(InvalidSettings):
        configure({"LANCEWAL_FAILPOINT": "nonsense", "LANCEWAL_TESTING": "1"})
    with point("poll"):
        pass
    assert len(events(log)) == 2


def test_the_event_log_needs_no_testing_and_is_written_at_once(tmp_path: Path) -> None:
    log = tmp_path / "events"
    configure({"LANCEWAL_EVENT_LOG": str(log)})
    with point("wal.put", object="a/b", sequence=7, folder=Path("x")):
        assert events(log) == [("wal.put", "before")]
    first, second = map(json.loads, log.read_text().splitlines())
    assert first == {
        "point": "wal.put",
        "when": "before",
        "pid": os.getpid(),
        "object": "a/b",
        "sequence": 7,
        "folder": "x",
    }
    assert second == {**first, "when": "after"}
    configure({"LANCEWAL_EVENT_LOG": str(log)})
    with point("poll"):
        pass
    assert len(events(log)) == 4  # appended


def test_an_act_that_fails_has_no_after(tmp_path: Path) -> None:
    log = tmp_path / "events"
    configure({"LANCEWAL_EVENT_LOG": str(log)})
    with pytest.raises(RuntimeError, match="in the act"), point("wal.put"):
        raise RuntimeError("in the act")
    assert events(log) == [("wal.put", "before")]


def test_several_act_independently() -> None:
    spec = "seal.cas:before:2=error,wal.put:after=error,seal.cas:before:4=error"
    configure({"LANCEWAL_FAILPOINT": spec, "LANCEWAL_TESTING": "1"})
    failed = []
    for number, name in enumerate(["seal.cas", "seal.cas", "wal.put", "seal.cas", "wal.put", "seal.cas", "seal.cas"]):
        try:
            with point(name):
                pass
        except FailpointError:
            failed.append(number)
    assert failed == [1, 2, 5]


@pytest.mark.parametrize(("when", "done"), [("before", [1, 2]), ("after", [1, 2, 3])])
def test_an_error_is_raised_at_the_nth_passing_only(when: str, done: list[int]) -> None:
    configure({"LANCEWAL_FAILPOINT": f"seal.cas:{when}:3=error", "LANCEWAL_TESTING": "1"})
    acts: list[int] = []

    def act(number: int) -> None:
        with point("wal.put"), point("seal.cas"):
            acts.append(number)

    act(1)
    act(2)
    with pytest.raises(FailpointError, match=f"seal.cas:{when}"):
        act(3)
    assert acts == done
    act(4)
    assert acts == [*done, 4]


def test_configuring_anew_ends_what_was_configured() -> None:
    configure({"LANCEWAL_FAILPOINT": "poll:before=error", "LANCEWAL_TESTING": "1"})
    configure({"LANCEWAL_TESTING": "1"})
    assert failpoints._active is None
    with point("poll"):
        pass


# -- in a process of its own -------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
from lancewal_core.process.failpoints import configure, point
configure(os.environ)
for turn in range(5):
    with point("poll", turn=turn):
        pass
    with point("wal.put", turn=turn):
        print("put", turn)  # stays in a buffer that a kill loses; the event log does not
    with point("memtable.apply", turn=turn):
        pass
"""


CROWD = """
import os, threading, time
from lancewal_core.process.failpoints import configure, point
write = os.write
def slow_write(file, data):
    write(file, data)
    time.sleep(0.002)  # lets the other threads go on, as a busy machine does
os.write = slow_write
configure(os.environ)
def pass_points(name):
    while True:
        with point(name):
            pass
for name in ("poll", "decode", "log.walk", "dv.write"):
    threading.Thread(target=pass_points, args=(name,), daemon=True).start()
pass_points("wal.put")
"""


def start(log: Path, failpoint: str, program: str = PROGRAM, **environment: str) -> subprocess.Popen[str]:
    variables = {
        "LANCEWAL_FAILPOINT": failpoint,
        "LANCEWAL_EVENT_LOG": str(log),
        "LANCEWAL_TESTING": "1",
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("when", "lines"), [("before", 15), ("after", 16)])
def test_kill_ends_the_process_right_there(tmp_path: Path, when: str, lines: int) -> None:
    log = tmp_path / "events"
    process = start(log, f"wal.put:{when}:3=kill")
    output, _ = process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL
    assert output == ""
    assert events(log)[-1] == ("wal.put", when)
    assert len(events(log)) == lines
    last: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    assert (last["pid"], last["turn"]) == (process.pid, 2)


def test_beside_other_threads_the_line_of_a_kill_is_the_last_one(tmp_path: Path) -> None:
    log = tmp_path / "events"
    process = start(log, "wal.put:before:5=kill", CROWD)
    process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL
    assert events(log)[-1] == ("wal.put", "before")
    assert events(log).count(("wal.put", "before")) == 5


WORKERS = """
import os, threading
from lancewal_core.process.failpoints import configure, point
configure(os.environ)
def pass_points():
    while True:
        with point("dv.write"):
            pass
threads = [threading.Thread(target=pass_points) for _ in range(4)]
for thread in threads:
    thread.start()
threads[0].join()
"""


def test_beside_other_threads_the_line_of_a_stop_is_the_last_one(tmp_path: Path) -> None:
    """Who freezes is a worker thread, while the main thread sleeps.  Several times: it may be the last one by chance."""
    for n in range(5):
        log = tmp_path / f"events-{n}"
        with start(log, "dv.write:before:50=stop", WORKERS) as process:
            try:
                _, status = os.waitpid(process.pid, os.WUNTRACED)
                assert os.WIFSTOPPED(status)
                assert events(log)[-1] == ("dv.write", "before")
                assert events(log).count(("dv.write", "before")) == 50
            finally:
                process.kill()


def test_stop_freezes_the_process_until_it_is_continued(tmp_path: Path) -> None:
    log = tmp_path / "events"
    process = start(log, "wal.put:before:2=stop")
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert events(log)[-1] == ("wal.put", "before")
        os.kill(process.pid, signal.SIGCONT)
        output, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert output.split() == ["put", "0", "put", "1", "put", "2", "put", "3", "put", "4"]
    assert len(events(log)) == 30


def test_a_process_that_is_not_testing_does_not_start(tmp_path: Path) -> None:
    process = start(tmp_path / "events", "wal.put:before=kill", LANCEWAL_TESTING="")
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "refused unless LANCEWAL_TESTING=1" in errors
    assert not (tmp_path / "events").exists()
