"""``lancewal demo``: run the demonstration, and print its summary."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from lancewal_core.errors import ActionNeeded, LancewalError


class FolderNotEmpty(ActionNeeded):
    """The folder given by ``--keep`` has files in it already."""


def command(
    flights: Annotated[int | None, typer.Option(min=100, help="Number of flights; by default all 336,776.")] = None,
    rate: Annotated[float, typer.Option(min=1, help="Messages a second in the live part.")] = 5_000,
    keep: Annotated[
        Path | None, typer.Option(help="Run in this folder, new or empty, and leave everything in it.", metavar="DIR")
    ] = None,
) -> None:
    """Run everything on this machine: real flights through Kafka, ingest, flusher, readers and Spark, checked by DuckDB.

    Exit code 0 only if every comparison holds.

    Example: lancewal demo --flights 5000
    """
    from lancewal_demo.progress import make_display
    from lancewal_demo.run import Options, run_demo
    from lancewal_demo.summary import summary_text

    # Both end the run in the same orderly way, also where the shell that started it ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminated)
    folder = _folder(keep)
    kept = keep is not None
    try:
        with make_display() as display:
            summary = run_demo(folder, Options(flights, rate), display)
        typer.echo(summary_text(summary))
        kept = kept or not summary.holds
        if not summary.holds:
            raise typer.Exit(1)
    except KeyboardInterrupt:
        print("lancewal demo: interrupted; everything that it started is stopped", file=sys.stderr)
        raise typer.Exit(130) from None
    except LancewalError:
        kept = True
        raise
    finally:
        if kept:
            print(f"settings, logs and the table are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="lancewal-demo-"))
    if keep.exists() and any(keep.iterdir()):
        raise FolderNotEmpty(f"{keep} is not empty: name a new folder")
    keep.mkdir(parents=True, exist_ok=True)
    return keep.resolve()


def _terminated(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
