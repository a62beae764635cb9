"""Resident memory of a process, by the word of the operating system."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def resident_bytes(field: Literal["VmRSS", "VmHWM"], pid: int | Literal["self"] = "self") -> int:
    """Now, or the most it ever had, of this program alone: ``ru_maxrss`` may begin with the peak of what started it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024
