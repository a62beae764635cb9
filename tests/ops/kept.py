"""What the last run of each fault came to, so that one fault can be made again and the page still has all of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lancewal_demo.stack import cache
from tests.ops.faults import FAULTS, UNMOVED
from tests.ops.watching import Fired, Results, Shown
from watch.dashboards.table import BOARDS

API_SERVER = "the API server"


class Kept:
    def __init__(self, file: Path | None = None) -> None:
        self._file = file or cache.cache_directory() / "check-ops.json"
        self._found: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def forget(self) -> None:
        """What runs before this one have left."""
        self._found = {}

    def keep(self, name: str, results: Results, took_s: float) -> None:
        """Of one fault, in place of what was there."""
        shown, fired = [asdict(s) for s in results.shown], [asdict(f) for f in results.fired]
        self._write(name, {"shown": shown, "fired": fired, "took_s": took_s})

    def keep_objects(self, number: int) -> None:
        """How many objects the API server took."""
        self._write(API_SERVER, number)

    @property
    def missing(self) -> list[str]:
        """Faults that no run has made yet."""
        return [fault.name for fault in FAULTS if fault.name not in self._found]

    @property
    def objects(self) -> int:
        return int(self._found.get(API_SERVER, 0))

    @property
    def minutes(self) -> float:
        return sum(float(self._found[fault.name]["took_s"]) for fault in FAULTS if fault.name in self._found) / 60

    def results(self) -> Results:
        """Of all faults, in their order."""
        names = [*(fault.name for fault in FAULTS), *UNMOVED]
        parts = [self._found[name] for name in names if name in self._found]
        panels = {(board.title, panel.title, panel.moved_by) for board in BOARDS for panel in board.panels}
        shown = [Shown(**one) for part in parts for one in part["shown"]]
        return Results(
            [one for one in shown if (one.board, one.panel, one.fault) in panels or one.fault in UNMOVED.values()],
            [Fired(**fired) for part in parts for fired in part["fired"]],
        )

    def _write(self, name: str, found: object) -> None:
        self._found[name] = found
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._found, indent=1))
