"""The most memory that this program has had."""

from __future__ import annotations

from pathlib import Path


def peak_mib() -> float:
    """Resident, of this program alone: ``ru_maxrss`` would count the parent's memory as of the moment of the fork."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")
