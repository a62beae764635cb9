"""Numbers of the records that entries pass over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lancewal_ingest.append.prepare import Together


def passed_over(*found: Together) -> Mapping[str, int]:
    """Return the numbers by kind, for results of one call."""
    return Counter(kind for one in found for kind, at in one.passed_over.items() for _ in set(at.tolist()))
