"""What something took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds, by the clock and of the CPUs."""

    wall: float
    cpu: float
