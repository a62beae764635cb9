"""One line on a terminal that shows a command's current step, its progress, and who does not answer.

Guarantees
 1. Nothing is written unless stderr is a terminal, and nothing to stdout.
 2. The line appears once a step has taken ``SHOWN_AFTER_S``.  A step that only waits for a server appears with
    guarantee 4.  The line is rewritten in place, and never longer than the terminal is wide.  The line is erased once
    no step goes on, so a command's output has its lines to itself.
 3. A line of the log erases it first.
 4. If an answer is missing for ``SILENT_AFTER_S``, the line names who was asked, and for how long.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TextIO

from lancewal_core.cli.output import one_line
from lancewal_core.process.clock import Clock
from lancewal_core.process.progress import Step

SHOWN_AFTER_S = 1.0
SILENT_AFTER_S = 5.0
_TICK_S = 0.25
_COLUMNS = 80


@dataclass(slots=True)
class _Open:
    step: Step
    began_at: float
    moved_at: float
    done: int = 0


class ProgressLine:
    """A ``ProgressListener`` that writes to ``terminal``.  With ``ticking`` a thread draws; otherwise the caller calls
    ``draw``."""

    def __init__(self, terminal: TextIO, clock: Clock, *, ticking: bool = True) -> None:
        self._terminal = terminal
        self._clock = clock
        self._ticking = ticking
        self._lock = threading.Lock()
        self._open: list[_Open] = []
        self._drawn = ""
        self._midline = False
        """True while a log line is being written: the cursor is after the beginning of its line."""
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def begun(self, step: Step) -> None:
        """Show a step that has begun."""
        now = self._clock.monotonic()
        with self._lock:
            self._open.append(_Open(step, now, now))
            if self._ticking and self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="lancewal-progress", daemon=True)
                self._thread.start()

    def ended(self, step: Step) -> None:
        """No longer show a step."""
        with self._lock:
            self._open = [one for one in self._open if one.step is not step]
            if not self._open:
                self._erase()

    def draw(self) -> None:
        """Rewrite the line, if there is something to show."""
        with self._lock:
            if self._midline:
                return
            shown = one_line(self._text(self._clock.monotonic()))[: _columns(self._terminal) - 1]
            if not shown:
                self._erase()
            elif shown != self._drawn:
                self._write(f"\r{shown.ljust(len(self._drawn))}")
                self._drawn = shown

    def write(self, text: str) -> int:
        """Write lines of the log above the progress line."""
        with self._lock:
            self._erase()
            self._midline = not text.endswith("\n")
            return self._terminal.write(text)

    def flush(self) -> None:
        """Flush the terminal."""
        self._terminal.flush()

    def _text(self, now: float) -> str:
        """Return the text of the newest step that has taken long enough, or whose server is silent; empty if there is
        none."""
        for one in reversed(self._open):
            if one.step.done != one.done or not one.step.asked:
                one.done, one.moved_at = one.step.done, now
            quiet_s = now - one.moved_at
            if one.step.asked and quiet_s >= SILENT_AFTER_S:
                return f"{one.step.asked} has not answered for {quiet_s:.0f} s: {one.step.what}"
            if now - one.began_at >= SHOWN_AFTER_S and (one.step.unit or not one.step.asked):
                return _figures(one.step, now - one.began_at)
        return ""

    def _erase(self) -> None:
        if self._drawn:
            self._write(f"\r{' ' * len(self._drawn)}\r")
            self._drawn = ""

    def _write(self, text: str) -> None:
        try:
            self._terminal.write(text)
            self._terminal.flush()
        except (OSError, ValueError):
            self._open = []  # the terminal is gone; the work goes on

    def _tick(self) -> None:
        while not self._over.wait(_TICK_S):
            self.draw()
            with self._lock:
                if not self._open:
                    self._thread = None
                    return


def _figures(step: Step, took_s: float) -> str:
    """Return the text of a step, such as ``reading orders-3: 1,200 of 5,000 offsets (24 %), 600/s, 2 s``."""
    said = []
    if step.unit:
        total = "" if step.total is None else f" of {step.total:,}"
        share = f" ({100 * min(step.done, step.total) // step.total} %)" if step.total else ""
        said.append(f"{step.done:,}{total} {step.unit}{share}")
        if step.done:
            rate = step.done / took_s
            said.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
    return f"{step.what}: {', '.join([*said, _duration(took_s)])}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _columns(terminal: TextIO) -> int:
    try:
        return os.get_terminal_size(terminal.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS
