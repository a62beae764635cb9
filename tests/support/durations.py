"""What each test of a run took, as a file: ``--durations-file``, JSON, the longest first.

``seconds`` is wall time with fixtures that the test was the first to need, ``cpu_seconds`` what this process and children
that have ended took of processors: that alone can be compared between runs beside which others work.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


class Durations:
    """A pytest plugin."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._taken: dict[str, dict[str, float]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began, cpu = time.monotonic(), _cpu_seconds()
        try:
            return (yield)
        finally:
            seconds, cpu_seconds = time.monotonic() - began, _cpu_seconds() - cpu
            self._taken[item.nodeid] = {"seconds": round(seconds, 3), "cpu_seconds": round(cpu_seconds, 3)}

    def pytest_sessionfinish(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        taken = sorted(self._taken.items(), key=lambda test: -test[1]["seconds"])
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(figures)}" for name, figures in taken)
        self._file.write_text(f"{{\n{lines}\n}}\n")


def _cpu_seconds() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--durations-file", type=Path, default=None, help="write what each test took to this file (JSON)")


def configure(config: pytest.Config) -> None:
    file = config.getoption("--durations-file")
    if file is not None:
        config.pluginmanager.register(Durations(file), "lancewal-durations")
