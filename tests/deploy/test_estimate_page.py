"""docs/how-to/estimate.md shows what its commands print.

``python -m tests.deploy.test_estimate_page`` writes what they print now.
"""

from __future__ import annotations

import contextlib
import io
import shlex
from pathlib import Path

from lancewal_core.cli.program import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "estimate.md"
_BEGIN, _END = "```console\n$ lancewal ", "```\n"


def written(text: str) -> str:
    """The page with the output of each command behind it."""
    before, *blocks = text.split(_BEGIN)
    found = [before]
    for block in blocks:
        shown, _, behind = block.partition(_END)
        command = shown.splitlines()[0]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert run(shlex.split(command)) == 0, command
        found.append(f"{_BEGIN}{command}\n{out.getvalue()}{_END}{behind}")
    return "".join(found)


def test_the_page_shows_what_its_commands_print() -> None:
    text = PAGE.read_text()
    assert text.count(_BEGIN) >= 3
    assert written(text) == text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
