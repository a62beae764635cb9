"""Exit codes, and what happens to the folder."""

from __future__ import annotations

import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lancewal_demo.run
from lancewal_core.cli.program import run
from lancewal_demo.comparison import compare
from lancewal_demo.notices import Found
from lancewal_demo.producer import Sent
from lancewal_demo.progress import Display
from lancewal_demo.run import Options
from lancewal_demo.stack import StackFailed
from lancewal_demo.stored import Stored
from lancewal_demo.summary import Summary, summary_text


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary folders; signal handlers are put back."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)


def summary(found: int) -> Summary:
    comparison = compare("it", pa.table({"a": [1]}), pa.table({"a": [found]}))
    sent = Sent(100, 20_000, 2.0)
    stored = Stored(5, 4, 3, 2, 8_000_000, 1_000_000, 500_000)
    notices = Found((30.0, 50.0), (), 80, 5, 20, (comparison,))
    return Summary(sent, 1234.5, sent, Counter({10: 98, 20: 1, 30: 1}), 7, stored, notices, (comparison,), 9.0)


def pretend(monkeypatch: pytest.MonkeyPatch, end: Summary | BaseException) -> None:
    def instead(folder: Path, options: Options, display: Display) -> Summary:
        (folder / "something").write_text("x")
        if isinstance(end, BaseException):
            raise end
        return end

    monkeypatch.setattr(lancewal_demo.run, "run_demo", instead)


def test_a_run_that_holds_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, summary(1))
    assert run(["demo"]) == 0
    assert capsys.readouterr().out == summary_text(summary(1)) + "\n"
    assert list(place.iterdir()) == []


def test_a_failed_comparison_is_exit_code_1_and_keeps_the_folder(
    monkeypatch: pytest.MonkeyPatch, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, summary(2))
    assert run(["demo"]) == 1
    shown = capsys.readouterr()
    assert "A COMPARISON FAILED." in shown.out
    (kept,) = place.iterdir()
    assert str(kept) in shown.err


def test_ctrl_c_is_exit_code_130_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    pretend(monkeypatch, KeyboardInterrupt())
    assert run(["demo"]) == 130
    assert list(place.iterdir()) == []


def test_a_failed_service_is_shown_and_keeps_the_folder(
    monkeypatch: pytest.MonkeyPatch, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, StackFailed("ingest ended with exit code 2.\nThe end of ingest.log:\nthe reason"))
    assert run(["demo"]) == 2
    assert "the reason" in capsys.readouterr().err
    assert len(list(place.iterdir())) == 1


def test_a_folder_that_was_named_is_kept(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    pretend(monkeypatch, summary(1))
    assert run(["demo", "--keep", str(place / "mine")]) == 0
    assert [file.name for file in (place / "mine").iterdir()] == ["something"]


def test_the_summary_shows_the_figures() -> None:
    text = summary_text(summary(1))
    for figure in ("200 in 40 kB", "1,234 messages a second", "p50 10 ms, p95 10 ms, p99 20 ms", "at 50 messages"):
        assert figure in text
    for figure in ("5 segments, 8 MB", "version 2 after 3 merges of 4 generations", "237.50 bytes", "9 s"):
        assert figure in text
