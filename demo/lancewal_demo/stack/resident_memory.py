"""Resident memory of a process, as the operating system reports it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def resident_bytes(field: Literal["VmRSS", "VmHWM"], pid: int | Literal["self"] = "self") -> int:
    """Return resident bytes of a process: now, or the peak, by ``field`` of ``/proc/PID/status``.

    ``ru_maxrss`` would not do: it may begin with the peak of the parent process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024
