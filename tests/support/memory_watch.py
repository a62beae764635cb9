"""The peak of a process's resident memory, as the kernel keeps it: nothing is missed between two looks."""

from __future__ import annotations

from pathlib import Path

from lancewal_demo.stack.resident_memory import resident_bytes


def forget_peak(pid: int) -> None:
    """The peak begins anew with what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """The most since the beginning, or since ``forget_peak``."""
    return resident_bytes("VmHWM", pid)
