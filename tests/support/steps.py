"""The steps that long work tells of, as a terminal would be told them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lancewal_core.cli import logs
from lancewal_core.process import progress
from lancewal_core.process.progress import Step


class Steps:
    """All steps so far, in the order of their begin; and those that go on."""

    def __init__(self) -> None:
        self.told: list[Step] = []
        self.open: list[Step] = []

    def begun(self, step: Step) -> None:
        self.told.append(step)
        self.open.append(step)

    def ended(self, step: Step) -> None:
        self.open.remove(step)

    def one(self, what: str) -> Step:
        """The first one of this name."""
        return next(step for step in self.told if step.what == what)


@contextmanager
def steps_told() -> Iterator[Steps]:
    """A listener inside of the block, also for a command that is run in it."""
    steps = Steps()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(progress, "_listener", steps)
        patched.setattr(logs, "listen", lambda _: None)
        yield steps
    assert steps.open == []
