"""``lancewal status --watch``: looks again and again, each time with what is there then."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lancewal_core.cli.options import Output
from lancewal_core.process.clock import utc_text
from lancewal_core.process.status.report import TableStatus
from lancewal_tables.commands.status import WATCH_S, status_text, watched
from tests.support.scripted import ManualClock
from tests.support.shown_status import shown_status

LOOKS = 3


def watch(output: Output, *, clear: bool = False) -> ManualClock:
    """So many looks, each at a newer version."""
    clock = ManualClock()
    seen: list[TableStatus] = []

    def look() -> TableStatus:
        seen.append(replace(shown_status(2), at_ms=clock.now_ms(), table_version=40 + len(seen)))
        return seen[-1]

    watched(look, output, clock, clear=clear, stopping=lambda: len(seen) == LOOKS)
    return clock


def test_as_json_each_look_is_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    clock = watch(Output.JSON)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["table_version"] for one in found] == [40, 41, 42]
    assert [one["at_ms"] - found[0]["at_ms"] for one in found] == [0, WATCH_S * 1000, 2 * WATCH_S * 1000]
    assert clock.seconds == LOOKS * WATCH_S


def test_as_text_each_look_has_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    start = ManualClock().now_ms()
    watch(Output.TEXT)
    text = capsys.readouterr().out
    times = [f"at        {utc_text(start + int(WATCH_S * 1000) * i)}" for i in range(LOOKS)]
    assert [line for line in text.splitlines() if line.startswith("at  ")] == times
    assert status_text(replace(shown_status(2), at_ms=start, table_version=42)) in text
    assert "\x1b" not in text


def test_on_a_terminal_each_look_takes_the_place_of_the_one_before(capsys: pytest.CaptureFixture[str]) -> None:
    watch(Output.TEXT, clear=True)
    looks = capsys.readouterr().out.split("\x1b[H\x1b[2J")
    assert looks[0] == ""
    assert [look.startswith("at  ") for look in looks[1:]] == [True] * LOOKS
