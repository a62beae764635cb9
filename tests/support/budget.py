"""The wall budget of a test run: a suite that grows too slow fails, instead of being run less and less often.

1. No test starts after the budget is used up; the run then counts as failed.
2. A run whose last test ends after the budget counts as failed too.
"""

from __future__ import annotations

import time

import pytest

DEFAULT_MINUTES = 70.0


class Budget:
    """A pytest plugin; ``minutes`` is wall time from the start of the run."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self._ends = time.monotonic() + minutes * 60

    @property
    def exceeded(self) -> bool:
        return time.monotonic() > self._ends

    @property
    def _message(self) -> str:
        return f"the test run took more than its budget of {self.minutes:g} minutes (--budget-minutes)"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if self.exceeded:
            item.session.shouldfail = self._message

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.exceeded and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.exceeded:
            terminalreporter.write_line(self._message, red=True)


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budget-minutes",
        type=float,
        default=DEFAULT_MINUTES,
        help=f"fail a run that takes longer than this (default {DEFAULT_MINUTES:g})",
    )
