"""Progress of the demonstration: bars on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol, Self


class Bar(Protocol):
    """Progress of one task with a known total."""

    def update(self, done: int) -> None:
        """Show that ``done`` of the bar's total are done."""


class Display(Protocol):
    """Shows steps and bars; used as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def step(self, text: str) -> None:
        """Show the step that begins now."""

    def bar(self, text: str, total: int) -> Bar:
        """Show a new bar, and return it."""


def make_display() -> Display:
    return TerminalDisplay() if sys.stderr.isatty() else PlainDisplay()


class PlainDisplay:
    """Prints lines to stderr, each with the seconds since the start; a bar becomes one line when it is full."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def step(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:6.1f} s  {text}", file=sys.stderr, flush=True)

    def bar(self, text: str, total: int) -> Bar:
        return _PlainBar(self, text, total)


class _PlainBar:
    def __init__(self, display: PlainDisplay, text: str, total: int) -> None:
        self._display = display
        self._text = text
        self._total = total
        self._full = False

    def update(self, done: int) -> None:
        if done >= self._total and not self._full:
            self._full = True
            self._display.step(f"  {self._text}: {self._total:,}")


class TerminalDisplay:
    """Shows bars below the lines on a terminal, redrawn by rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._started = time.monotonic()
        self._progress = Progress(
            TextColumn("         {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False),
            refresh_per_second=5,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def step(self, text: str) -> None:
        self._progress.console.print(f"{time.monotonic() - self._started:6.1f} s  {text}", markup=False)

    def bar(self, text: str, total: int) -> Bar:
        return _TerminalBar(self, text, total)


class _TerminalBar:
    def __init__(self, display: TerminalDisplay, text: str, total: int) -> None:
        self._progress = display._progress
        self._task = self._progress.add_task(text, total=total)

    def update(self, done: int) -> None:
        self._progress.update(self._task, completed=done)
