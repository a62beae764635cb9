"""Kinds of worlds for random schedules, by name."""

from __future__ import annotations

from dataclasses import replace

from lancewal_core.testing.faults import Rates
from tests.simulation.world import Settings

_SMALL = Settings(partitions=2, keys=8, records=12, members=2, flushers=1, readers=1)

KINDS: dict[str, Settings] = {
    "small": _SMALL,
    "merges": replace(_SMALL, members=1, flushers=3),
    "compaction": replace(_SMALL, members=1, flushers=2, compactors=2),
    "ingest": replace(_SMALL, records=55, members=3, flushers=0, collectors=0, readers=0, user=False),
    "readers": replace(_SMALL, flushers=1, readers=3, user=False, history_window_s=0, grace_s=0),
    "lossy": replace(_SMALL, lose_files=True, rates=Rates(put=0.2, listing=0.6, commit=0.3, unavailable=0.03)),
    "whole": Settings(),
}
"""All but ``whole`` are short: hundreds of switches to tens of milliseconds."""
