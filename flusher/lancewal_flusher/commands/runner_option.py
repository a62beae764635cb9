"""The option ``--runner`` of commands whose tasks may run on Spark, and the Spark session that they need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from lancewal_core.settings.load import Settings


class RunnerName(StrEnum):
    """Places where tasks run."""

    THREADS = "threads"
    SPARK = "spark"


RunnerOption: TypeAlias = Annotated[
    RunnerName | None,
    typer.Option("--runner", help="Runner of tasks on fragments; by default flusher.runner of the settings."),
]


def choosing(settings: Settings, runner: RunnerName | None) -> Settings:
    """Return the settings, with the runner from the command line if it names one."""
    if runner is None:
        return settings
    flusher = settings.flusher.model_copy(update={"runner": runner.value})
    return settings.model_copy(update={"flusher": flusher})


@contextmanager
def session_for(settings: Settings) -> Iterator[None]:
    """Hold a Spark session for the time of a command, if these settings need one.  Enter it before Lance is imported."""
    if settings.flusher.runner != "spark":
        yield
        return
    from lancewal_flusher.tasks.spark_session import spark_session

    with spark_session():
        yield
