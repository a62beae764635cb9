"""The file in which a soak notes its acts, a line of JSON each."""

from __future__ import annotations

import json
import time
from pathlib import Path


class Journal:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def note(self, act: str, **more: object) -> None:
        self._file.write(json.dumps({"at": round(time.time(), 3), "act": act, **more}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
