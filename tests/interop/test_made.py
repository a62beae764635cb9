"""The tables of ``dev.py interop`` are as they are told, and a reader that sees other rows is not called right."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop import __main__ as interop
from tests.interop import by_pylance
from tests.interop.__main__ import ASKED
from tests.interop.made import TITLES, Made, made_tables
from tests.interop.page import page


def answers(made: Made, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, str]:
    capsys.readouterr()
    by_pylance.main(json.loads(json.dumps(made.asked((*more, *ASKED)))))
    return dict(json.loads(line) for line in capsys.readouterr().out.splitlines())


def test_names_and_cuts_are_read_by_this_pylance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with made_tables(tmp_path) as tables:
        for name in ("directory", "rest"):
            assert set(answers(tables[name], capsys, "list").values()) == {"right"}
        cut = tables["cut"]
        assert set(answers(cut, capsys).values()) == {"right"}
        assert cut.rows != tables["directory"].rows
        merged = replace(cut, branch=None)  # the table as it is merged lacks rows of the cut
        assert answers(merged, capsys)["all columns"] == "WRONG"
        other = tmp_path / "expected.json"
        rows = json.loads(Path(cut.expected or "").read_text())
        other.write_text(json.dumps([*rows[:-1], [*rows[-1][:3], "another"]]))
        assert answers(replace(cut, expected=str(other)), capsys)["all columns"] == "WRONG"


class Hangs:
    """A process that has answered one question, and hangs until it is killed."""

    def __init__(self, *_: object, **__: object) -> None:
        self.killed = False

    def kill(self) -> None:
        self.killed = True

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        if not self.killed:
            assert timeout is not None
            raise subprocess.TimeoutExpired("reader", timeout)
        return '["count", "right"]\n', None


def test_a_reader_that_hangs_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers until then count."""
    monkeypatch.setattr(subprocess, "Popen", Hangs)
    found = interop._asked(["reader"], Made("nowhere", None, 1, 1, 1, ""), ("count", "filter"))
    assert found == {"count": "right", "filter": "no answer in 600 s"}


def test_the_page_of_two_runs_is_one() -> None:
    """A panic is told by whichever of its tasks comes first."""
    ways = (
        "OSError: task 58 panicked wi",
        "ArrowInvalid: RuntimeError: Task was aborted",
        "PanicException: called `Re",
    )
    about = dict.fromkeys(TITLES, "1 fragment")

    def of(answer: str) -> str:
        return page({"1.0.4": {name: {"count": "right", "take": answer} for name in TITLES}}, {}, about)

    assert len({of(way) for way in ways}) == 1
    assert "| 1.0.4 | right | Lance's reader panics |" in of(ways[0])
    assert "| 1.0.4 | right | OSError: not found |" in of("OSError: not found")
