"""Kinds of worlds for random schedules, by name."""

from __future__ import annotations

from dataclasses import replace

from lancewal_ingest.regions.policy import SealPolicy
from tests.simulation.settings import ACTS, BRISK, CHAOS, Delay, Limits, Settings
from tests.simulation.swarm import CALM
from tests.twins.faults import Rates

_SMALL = Settings(partitions=2, keys=8, records=12, members=2, flushers=1, readers=1)

_SWARM = Settings(
    partitions=3,
    keys=8,
    records=48,
    members=3,
    flushers=3,
    collectors=2,
    readers=3,
    chaos={**CHAOS, "expel": 3.0, "retention": 2.0},
    user={**ACTS, "append to a shared key": 2.0, "lose files": 0.5},
    shared_keys=2,
    operator=True,
    swarm=True,
)

_COLUMNS = replace(
    _SMALL,
    records=40,
    changers=2,
    flushers=2,
    compactors=1,
    readers=2,
    user={"index": 1.0, "compact": 1.0, "add a column": 0.5, "rename a column": 0.3},
)
_COMMITS = (("commit", ""), ("put", "/contract/"), ("newest", "table"))

KINDS: dict[str, Settings] = {
    "small": _SMALL,
    "merges": replace(_SMALL, members=1, flushers=3),
    "compaction": replace(_SMALL, members=1, flushers=2, compactors=2),
    "ingest": replace(_SMALL, records=55, members=3, flushers=0, collectors=0, readers=0, user={}),
    "readers": replace(_SMALL, flushers=1, readers=3, user={}, history_window_s=0, grace_s=0),
    "lossy": replace(
        _SMALL,
        user={**ACTS, "lose files": 1.0},
        rates=Rates(put=0.2, listing=0.6, commit=0.3, unavailable=0.03),
    ),
    "long lives": replace(
        _SMALL,
        records=30,
        burst_records=2,
        seals=BRISK,
        history_window_s=0,
        grace_s=0,
        chaos={"warp": 3.0, "crash": 0.5, "none": 5.0},
        limits=Limits(page_at=4, page_rest=1, versions_kept=15),
    ),
    "restores": replace(_SMALL, records=24, burst_records=3, readers=2, user={**ACTS, "restore": 1.0}),
    "snapshots": replace(_SMALL, records=30, keepers=2, flushers=2),
    # What is merged is trimmed at once, and versions go from behind their successors, but for subscriptions.
    "subscriptions": replace(
        _SMALL,
        records=60,
        burst_records=3,
        seals=BRISK,
        flushers=2,
        collectors=2,
        readers=1,
        subscribers=3,
        history_window_s=0,
        grace_s=0,
        subscription_hold_s_max=20,
        user={"append": 1.0, "compact": 1.0, "index": 1.0},
        delays=(
            *(Delay(f"collector{i}", "put", "/pages/", 0.5, 1.0) for i in range(2)),
            *(Delay(f"collector{i}", "remove versions", "", 0.3, 1.0) for i in range(2)),
            *(Delay(f"subscriber{i}", "put", "/subscriptions/", 0.2, 0.5) for i in range(3)),
        ),
    ),
    # Where somebody keeps snapshots, versions go from between others.
    "points": replace(_SMALL, records=40, readers=0, travellers=2, keepers=1, history_window_s=2),
    "columns": _COLUMNS,
    "kept columns": replace(_COLUMNS, keepers=1, travellers=1, history_window_s=2),
    # Whoever changes columns, merges or widens is slow at each commit and contract, so that others come in between.
    "slow columns": replace(
        _COLUMNS,
        records=80,
        changers=3,
        user={**_COLUMNS.user, "restore": 0.03},
        delays=(
            *(Delay(f"flusher{i}", act, what, 0.3, 1.0) for i in range(2) for act, what in _COMMITS),
            *(Delay(f"changer{i}", act, what, 0.3, 1.0) for i in range(3) for act, what in _COMMITS),
            Delay("member0", "put", "/wal/", 0.2, 2.0),
            Delay("reader0", "get", "/wal/", 0.3, 1.0),
        ),
    ),
    "swarm": _SWARM,
    "slow members": replace(_SWARM, slow="member", readers=1, user={}, operator=False),
    "slow flushers": replace(_SWARM, slow="flusher", readers=1, operator=False),
    "slow readers": replace(_SWARM, slow="reader", user={}, operator=False),
    # Regions go to and fro between two members that live, while readers are slow on their way through the logs.
    "hand-overs": Settings(
        partitions=2,
        keys=8,
        records=60,
        burst_records=2,
        burst_s=0.15,
        members=2,
        flushers=0,
        collectors=0,
        readers=3,
        user={},
        chaos={"rebalance": 8.0, "none": 1.0},
        chaos_s=0.1,
        rates=CALM,
        delays=tuple(Delay(f"reader{i}", "get", "/wal/", 0.4, 2.0) for i in range(3)),
    ),
    # Listings show nothing or little, while quiet regions hold on to logs in which others go far ahead.
    "lost listings": Settings(
        partitions=4,
        keys=8,
        skew=4,
        records=60,
        burst_records=6,
        seals=SealPolicy(rows=6, age_s=20.0, log_distance=60),
        members=2,
        flushers=2,
        collectors=2,
        readers=0,
        history_window_s=0,
        grace_s=0,
        user={},
        chaos={"rebalance": 1.0, "crash": 0.3, "none": 2.0},
        chaos_s=1.0,
        rates=Rates(put=0.0, listing=0.9, blank=0.5, commit=0.0, unavailable=0.0),
    ),
    # Members are expelled and hear of it late, while others are slow on their way from an index to its log, and everything
    # is merged and trimmed at once.
    "deaf members": Settings(
        partitions=3,
        keys=8,
        skew=4,
        records=100,
        burst_records=3,
        seals=BRISK,
        members=3,
        flushers=1,
        collectors=1,
        rest_s=0.02,
        readers=0,
        history_window_s=0,
        grace_s=0,
        user={},
        chaos={"expel": 1.0},
        chaos_s=3.0,
        deaf_s=5.0,
        rates=CALM,
        delays=tuple(Delay(f"member{i}", "newest", "", 0.5, 3.0) for i in range(3)),
    ),
    # Long quiet between single records: what is written is merged and trimmed before the next comes, so that most of the time
    # a log has nothing in it.  One member is slow on its way from an index to its log; who is expelled hears of it late.
    "quiet regions": Settings(
        partitions=2,
        keys=4,
        records=40,
        burst_records=1,
        burst_s=5.0,
        seals=SealPolicy(rows=4, age_s=0.4, log_distance=1),
        members=2,
        flushers=1,
        collectors=1,
        rest_s=1.0,
        readers=0,
        history_window_s=0,
        grace_s=0,
        user={},
        chaos={"expel": 1.0, "rebalance": 2.0, "none": 20.0},
        chaos_s=1.0,
        deaf_s=30.0,
        rates=CALM,
        delays=(Delay("member0", "newest", "", 0.9, 10.0),),
    ),
    # Swaps of pages take longer than many segments, and often have no verdict, while members come and go.
    "slow seals": Settings(
        partitions=3,
        keys=8,
        records=60,
        burst_records=3,
        burst_s=0.1,
        seals=SealPolicy(rows=4, age_s=0.4, log_distance=3),
        members=2,
        flushers=1,
        collectors=1,
        readers=1,
        history_window_s=0,
        grace_s=0,
        user={},
        chaos={"rebalance": 1.0, "crash": 0.5, "expel": 1.0, "none": 4.0},
        chaos_s=0.5,
        deaf_s=1.0,
        rates=Rates(put=0.1, listing=0.0, commit=0.0, unavailable=0.02),
        delays=tuple(Delay(f"member{i}", "put", "/pages/", 0.7, 0.5) for i in range(2)),
    ),
    # Segments are lost and put back, while regions go to and fro and readers look.
    "lost segments": Settings(
        partitions=3,
        keys=8,
        skew=4,
        records=60,
        burst_records=3,
        seals=SealPolicy(rows=30, age_s=10.0, log_distance=30),
        members=2,
        flushers=1,
        collectors=1,
        readers=2,
        history_window_s=0,
        grace_s=0,
        user={},
        chaos={
            "lose segments": 2.0,
            "put segments back": 1.0,
            "rebalance": 2.0,
            "crash": 1.0,
            "expel": 1.0,
            "none": 2.0,
        },
        rates=CALM,
    ),
    # Bundles are written, and readers begin again and again, while segments are lost and put back as other objects, and what
    # is merged is trimmed at once.
    "bundles": Settings(
        partitions=3,
        keys=8,
        records=90,
        burst_records=2,
        burst_s=0.1,
        bundle_segments=4,
        seals=SealPolicy(rows=20, age_s=5.0, log_distance=20),
        members=2,
        flushers=1,
        collectors=1,
        readers=3,
        history_window_s=0,
        grace_s=0,
        user={},
        chaos={"lose segments": 1.0, "put segments back": 3.0, "rebalance": 1.0, "crash": 2.0, "none": 3.0},
        rates=CALM,
    ),
    "whole": Settings(keepers=1, travellers=1),
}
"""All but ``whole`` are short: hundreds of switches to tens of milliseconds.  ``swarm``: see the module of that name."""
