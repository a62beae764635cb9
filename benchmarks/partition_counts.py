"""The numbers of partitions that a benchmark measures."""

from __future__ import annotations

import os
from collections.abc import Sequence

VARIABLE = "BENCHMARK_PARTITIONS"


def partition_counts(usual: Sequence[int]) -> list[int]:
    """These, or the numbers that the variable names, as ``4,64``."""
    named = os.environ.get(VARIABLE)
    return [*map(int, named.split(","))] if named else [*usual]
