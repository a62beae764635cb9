"""Draws that are the same on every machine.

``log`` and ``pow`` of the C library differ in their last bit from processor to processor (with fused multiply-add or
without) and from library to library.  Such a bit decides which of two waits that are about equal is over first, and with it
all that follows.  So a time is rounded to a microsecond, a million times what they may differ by, and powers are products:
sums and products are the same everywhere.
"""

from __future__ import annotations

from math import prod
from random import Random


def drawn_s(rng: Random, mean_s: float) -> float:
    """Seconds until something happens that happens every ``mean_s`` on average."""
    return round(rng.expovariate(1 / mean_s), 6)


def drawn_key(rng: Random, keys: int, skew: int) -> int:
    """A key below ``keys``; the higher ``skew``, the more often a low one."""
    return int(prod([rng.random()] * skew) * keys)
