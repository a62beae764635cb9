"""The tables of ``dev.py interop`` are as they are told, and a reader that sees other rows is not called right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop import by_pylance
from tests.interop.__main__ import ASKED
from tests.interop.made import Made, made_tables


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
