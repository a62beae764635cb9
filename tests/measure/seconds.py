"""What a test run took, by folder of tests.

A whole run writes a file for each of its processes below ``.durations`` (``tests.support.durations``).  ``keep`` sums these
by test file into ``FILE``, which is committed.  Seconds depend on the machine: compare figures of one machine only.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tests.measure.tree import ROOT

FILE = "tests/measure/seconds.json"
PROCESSES = ("servers-1", "servers-2", "others-1", "others-2")
"""The processes of a whole run, as ``dev.py`` names their files."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Number of tests, seconds of wall time, seconds of processors."""

    tests: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: Taken) -> Taken:
        return Taken(self.tests + other.tests, self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)


def keep(folder: str = ".durations") -> None:
    """Sum the last whole run by test file and write ``FILE``.  Raises ``FileNotFoundError`` before the first run."""
    found = defaultdict[str, Taken](Taken)
    for process in PROCESSES:
        tests = json.loads((ROOT / folder / f"{process}.json").read_text())
        for name, figures in tests.items():
            found[name.partition("::")[0]] += Taken(1, figures["seconds"], figures["cpu_seconds"])
    lines = ",\n".join(
        f" {json.dumps(name)}: [{taken.tests}, {taken.seconds:.1f}, {taken.cpu_seconds:.1f}]"
        for name, taken in sorted(found.items())
    )
    (ROOT / FILE).write_text(f"{{\n{lines}\n}}\n")


def by_folder(tree: Mapping[str, str]) -> dict[str, Taken]:
    """Sum the committed figures by folder below ``tests``.  Empty at a commit without figures."""
    found = defaultdict[str, Taken](Taken)
    for name, figures in json.loads(tree.get(FILE, "{}")).items():
        found[name.split("/")[1]] += Taken(*figures)
    return dict(found)
