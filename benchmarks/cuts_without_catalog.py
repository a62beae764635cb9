"""Measure what services and readers notice of PostgreSQL, which has their catalog, while it is away.

Ingest, flusher and broker are processes as in production, with default settings; the services have the table by its name.  A
process reads it by its address.  The server is killed for ``away_s``, and comes again.  Rows that are produced in this time
are compared with those of ``before_s`` before.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fresh_reads import FreshReader
from benchmarks.lake import PROGRAM, Lake
from benchmarks.steady import PRODUCER_LINGER_MS, RATE, producing
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.small_s3.child import SmallS3Process

NAME = "away.orders"
TOPICS = {NAME: 4}


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of a run; the defaults are those of the page."""

    rows_per_s: int = RATE
    keys: int = 400_000
    before_s: float = 30.0
    """Also the time under load before the first of these seconds."""
    away_s: float = 60.0


def run(folder: Path, store: SmallS3Process, servers: str, size: Size) -> dict[str, float]:
    place = folder / "away"
    place.mkdir()
    with PostgresServer() as server, ExitStack() as stack:
        server.run("CREATE DATABASE lake")
        lake = Lake(place, store, servers, {"kind": "postgres", "url": server.url("lake"), "password": PASSWORD})
        lake.command("catalog", "init")
        lake.create([NAME], 0)
        with lake.far():
            return _away(lake, server, size, stack)


def _away(lake: Lake, server: PostgresServer, size: Size, stack: ExitStack) -> dict[str, float]:
    config = lake.config(NAME, table={"uri": NAME})
    for service in ("ingest", "flusher"):
        lake.start(stack, service, [*PROGRAM, service, "run", "-c", config], [NAME])
    rows_max = int(size.rows_per_s * (2 * size.before_s + 2 * size.away_s + 120))
    reader = FreshReader(lake.uri(NAME), rows_max, lake.folder / "found.npz", lake.store.options)
    stack.callback(reader.kill)
    with producing(lake.servers, [NAME], PRODUCER_LINGER_MS, size.keys, size.rows_per_s) as produced:
        time.sleep(size.before_s)
        began = time.time()
        time.sleep(size.before_s)
        killed = time.time()
        server.kill()
        time.sleep(size.away_s)
        back = time.time()
        lake.check_services()
        server.start()
    found = reader.end(produced())
    lake.check_services()
    before, away = found.p99(began, killed), found.p99(killed, back)
    return {
        "away_rows_lost": found.unseen,
        "away_failed_reads": len(found.said["failed"]),
        "away_fresh_before_p99_ms": before,
        "away_fresh_p99_ms": away,
        "away_fresh_ratio": away / before,
    }
