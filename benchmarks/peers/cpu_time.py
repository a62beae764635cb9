"""CPU seconds of processes and all that they started, from /proc: on a busy machine they say more than the clock."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(roots: Iterable[int], without: Collection[int] = ()) -> float:
    """Of the trees below ``roots``, children that were waited for included, but not the trees below ``without``."""
    spent: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has ended
            spent[int(entry.name)] = sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = 0, list(roots)
    while left:
        pid = left.pop()
        if pid in without:
            continue
        found += spent.get(pid, 0)
        left += children.get(pid, [])
    return found / _TICKS
