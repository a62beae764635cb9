"""Pausing and resuming: what is stored, who hears it, and what the commands say."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from lancewal_core.cli import program as cli
from lancewal_core.errors import FormatUnknown, ObjectCorrupt, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import Column, Contract, encode_contract
from lancewal_core.table.control import (
    POLL_S,
    RESUMED,
    RUNNING,
    Control,
    ControlReader,
    ControlWatch,
    Service,
    read_control,
)
from tests.support.pauses import pause, resume
from tests.support.scripted import InlineTasks, ManualClock, ScriptedStore
from tests.twins.faults import PutFault

INGEST, FLUSHER = Service.INGEST, Service.FLUSHER


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> ScriptedStore:
    return ScriptedStore(clock)


@pytest.fixture
def new_id() -> Callable[[], str]:
    numbers = count()
    return lambda: f"write-{next(numbers)}"


def test_nobody_has_said_anything(store: ScriptedStore, clock: ManualClock) -> None:
    assert read_control(store, None) == RUNNING
    assert ControlReader(store, clock, INGEST, None).read() is None


def test_each_word_is_a_version_and_leaves_the_other_service(
    store: ScriptedStore, clock: ManualClock, new_id: Callable[[], str]
) -> None:
    pause(store, clock, new_id, FLUSHER, None)
    paused = pause(store, clock, new_id, INGEST, None, 600.0)
    assert (paused.ingest, paused.flusher) == (clock.now_ms() + 600_000, RESUMED)
    resumed = resume(store, clock, new_id, FLUSHER, None)
    assert (resumed.ingest, resumed.flusher) == (clock.now_ms() + 600_000, None)
    assert read_control(store, None) == resumed
    assert resume(store, clock, new_id, FLUSHER, None) == resumed
    assert [paths.parse_control_version(i.key) for i in store.plain.list("_lancewal/")] == [3, 2, 1]


def test_a_lost_reply_makes_one_version(store: ScriptedStore, clock: ManualClock, new_id: Callable[[], str]) -> None:
    store.faults.puts += [PutFault.REPLY_LOST, PutFault.NEVER_ARRIVED]
    pause(store, clock, new_id, INGEST, None)
    pause(store, clock, new_id, FLUSHER, None)
    assert len(store.plain.list("_lancewal/")) == 2
    assert read_control(store, None).paused(INGEST, 0) == RESUMED


def test_a_word_of_another_operator_in_between_counts_too(
    store: ScriptedStore, clock: ManualClock, new_id: Callable[[], str]
) -> None:
    for version in (1, 4):  # the first version, and a later one
        store.before(
            "put", paths.control_version(version, None), lambda: pause(store.plain, clock, new_id, FLUSHER, None, 60.0)
        )
        newest = pause(store, clock, new_id, INGEST, None)
        assert (newest.ingest, newest.flusher) == (RESUMED, clock.now_ms() + 60_000)
        assert read_control(store, None) == newest
        clock.sleep(1)
        resume(store.plain, clock, new_id, INGEST, None)


@pytest.mark.parametrize("words", range(4))
def test_behind_the_first_look_the_next_version_is_asked_for_alone(
    store: ScriptedStore, clock: ManualClock, new_id: Callable[[], str], words: int
) -> None:
    for n in range(words):
        pause(store, clock, new_id, INGEST, None, 60.0 + n)
    reader = ControlReader(store, clock, FLUSHER, None)
    assert reader.read() is None
    store.calls.clear()
    assert reader.read() is None
    assert store.calls == [("get", paths.control_version(words + 1, None))]
    for n in range(2):
        pause(store.plain, clock, new_id, FLUSHER, None, 90.0 + n)
    assert reader.read() == clock.now_ms() + 91_000
    assert len(store.calls) == 4


def test_a_pause_ends_by_the_readers_clock(store: ScriptedStore, clock: ManualClock, new_id: Callable[[], str]) -> None:
    pause(store, clock, new_id, INGEST, None, 0.5)
    reader = ControlReader(store, clock, INGEST, None)
    assert reader.read() == clock.now_ms() + 500
    before = len(store.calls)
    held = []
    for _ in range(2):
        clock.sleep(0.499)
        held.append(reader.paused is not None)
    assert held == [True, False]
    assert len(store.calls) == before


def test_a_store_that_fails_neither_pauses_nor_resumes(
    store: ScriptedStore, clock: ManualClock, new_id: Callable[[], str]
) -> None:
    pause(store, clock, new_id, INGEST, None)
    reader = ControlReader(store, clock, INGEST, None)
    store.fail("get", "_lancewal/control/")
    with pytest.raises(StoreUnavailable):  # at the start nothing is known yet
        ControlWatch(reader, InlineTasks(), clock)
    assert reader.read() == RESUMED
    resume(store, clock, new_id, INGEST, None)
    store.fail("get", "_lancewal/control/")
    assert reader.read() == RESUMED
    assert reader.problem is None
    assert reader.read() is None


def test_what_cannot_be_read_leaves_it_as_it_is(
    store: ScriptedStore, clock: ManualClock, new_id: Callable[[], str]
) -> None:
    pause(store, clock, new_id, INGEST, None)
    pause(store, clock, new_id, INGEST, None, 10.0)
    reader = ControlReader(store, clock, INGEST, None)
    until = reader.read()
    assert until is not None
    store.plain.put_if_absent(paths.control_version(3, None), b"{")
    assert reader.read() == until
    assert isinstance(reader.problem, ObjectCorrupt)
    store.plain.put_if_absent(paths.control_version(4, None), Control.encode(Control(write_id="4")))
    assert reader.read() is None
    assert reader.problem is None


def test_the_watch_looks_at_the_start_and_then_now_and_then(
    store: ScriptedStore, clock: ManualClock, new_id: Callable[[], str]
) -> None:
    pause(store, clock, new_id, INGEST, None)
    watch = ControlWatch(ControlReader(store, clock, INGEST, None), InlineTasks(), clock)
    assert watch.look() == RESUMED
    resume(store, clock, new_id, INGEST, None)
    calls = len(store.calls)
    for _ in range(100):
        assert watch.look() == RESUMED
    assert len(store.calls) == calls
    clock.sleep(POLL_S)
    watch.look()  # asks
    assert watch.look() is None
    assert len(store.calls) > calls


def test_other_formats_are_named() -> None:
    with pytest.raises(FormatUnknown, match="format 2"):
        Control.decode(b'{"format": 2}', "here")
    for damaged in (b"", b"[]", b'{"write_id": "a", "ingest": -1}', b'{"write_id": "a", "reader": 5}'):
        with pytest.raises(ObjectCorrupt, match="here"):
            Control.decode(damaged, "here")


# -- the commands ----------------------------------------------------------------------------------------------


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path)
    contract = Contract(
        table_uuid="table", topic="orders", topic_id="id", partitions=1, primary_key=("k",), region_key=("k",),
        start=(0,), columns=(Column(name="k", type="int64", field_ids=(0,)),),
    )  # fmt: skip
    open_store(uri).put_if_absent(paths.contract_version(1, None), encode_contract(contract))
    return uri


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.run(arguments)
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_the_commands(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "pause", "ingest", "-t", uri) == (0, "ingest is paused until resumed\n")
    code, text = run(capsys, "pause", "flusher", "-t", uri, "--for", "10m", "-o", "json")
    shown = json.loads(text)
    assert code == 0
    assert shown["ingest"] == RESUMED
    assert shown["flusher"] == read_control(open_store(uri), None).flusher
    assert run(capsys, "resume", "ingest", "-t", uri) == (0, "ingest is not paused\n")
    assert read_control(open_store(uri), None).ingest is None


def test_a_dry_run_says_what_would_be_and_writes_nothing(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    end = "nothing was changed (--dry-run)\n"
    would = f"flusher would be paused until resumed\n{end}"
    assert run(capsys, "pause", "flusher", "--dry-run", "-t", uri) == (0, would)
    code, text = run(capsys, "pause", "flusher", "--for", "1d", "--dry-run", "-o", "json", "-t", uri)
    assert (code, type(json.loads(text)["flusher"])) == (0, int)
    assert read_control(open_store(uri), None) == RUNNING
    assert run(capsys, "pause", "flusher", "-t", uri)[0] == 0
    assert run(capsys, "resume", "flusher", "--dry-run", "-t", uri) == (0, f"flusher would be not paused\n{end}")
    assert read_control(open_store(uri), None).flusher == RESUMED


@pytest.mark.parametrize("duration", ["10", "0s", "-1m", "1w", "m", "1.5h", "99999999999d"])
def test_durations_that_are_none(uri: str, duration: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "pause", "ingest", "-t", uri, "--for", duration)
    assert code == 2
    assert duration in text
    assert read_control(open_store(uri), None) == RUNNING


def test_what_is_no_table_is_not_paused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "pause", "ingest", "-t", str(tmp_path))
    assert code == 2
    assert text.startswith("lancewal: not_a_lancewal_table: ")
