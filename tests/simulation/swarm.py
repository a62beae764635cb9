"""A swarm: each schedule leaves out a random part of what may happen, and draws how often the rest happens.

Events that happen all the time hide faults that need quiet: a log is trimmed only if a flusher merges undisturbed, and
a reader's region state is outdated only if the reader is slow and the others are not.  So no schedule has everything,
and each part is missing in some schedules and frequent in others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from lancewal_core.process.failpoints import POINTS
from tests.simulation.settings import BRISK, Delay, Limits, Mishap, Settings, Slow
from tests.twins.faults import Rates

OF_COLUMNS = ("columns.bring", "columns.grow", "columns.widen", "contract.put")
OF_CATALOGS = ("catalog.swap", "cut.snapshot", "cut.put", "cut.drop", "cut.publish", "drop.contract", "drop.delete")
PLACES = tuple(
    f"{name} {when}"
    for name in sorted(POINTS - {"spark.task", *OF_COLUMNS, *OF_CATALOGS})
    for when in ("before", "after")
)
"""Where a process may die or stand still: every named point but that of a Spark executor, which only reads, and
those of changes of columns and of catalogs, which few kinds of schedules have."""

CALLS = {
    "member": [
        ("get", "/wal/"),
        ("put", "/wal/"),
        ("get", "/pages/"),
        ("put", "/pages/"),
        ("put", "/flushes/"),
        ("", ""),
    ],
    "flusher": [("get", "/flushes/"), ("get", "/merges/"), ("put", "/pages/"), ("commit", ""), ("at", ""), ("", "")],
    "collector": [("list", ""), ("get", "/pages/"), ("put", "/pages/"), ("get", "/history/"), ("delete", ""), ("", "")],
    "reader": [
        ("get", "/wal/"),
        ("get", "/pages/"),
        ("get", "/flushes/"),
        ("get", "/merges/"),
        ("scan", ""),
        ("", ""),
    ],
}
"""Calls that may be slow, by kind of process: acts, and parts of keys."""
CALM = Rates(put=0.0, listing=0.0, commit=0.0, unavailable=0.0)
_RESTORES = 0.06
"""Share of schedules in which a user restores an old version: from then on nothing is merged, so it is the end."""


def drawn(settings: Settings, rng: Random) -> Settings:
    """What the schedule with these draws is like."""
    found = _anything(settings, rng)
    return found if settings.slow is None else _one_kind_is_slow(found, settings.slow, rng)


def _one_kind_is_slow(settings: Settings, kind: Slow, rng: Random) -> Settings:
    """The same, but each process of this kind has one slow call, and often everything is merged and trimmed at once.

    Beside slow merges a user often appends their keys: that is what makes follow-ups.
    """
    if rng.random() < 0.5:
        settings = replace(settings, seals=BRISK, history_window_s=0, grace_s=0)
    if kind == "flusher" and rng.random() < 0.5:
        settings = replace(settings, shared_keys=2, user={**settings.user, "append to a shared key": 4.0})
    return replace(
        settings,
        members=max(settings.members, 2),
        flushers=max(settings.flushers, 2),
        readers=max(settings.readers, 1),
        burst_records=3,
        chaos_s=rng.choice([0.1, 0.3]),
        user_s=rng.choice([0.1, 0.5]),
        rates=rng.choice([CALM, settings.rates]),
        delays=tuple(
            Delay(f"{kind}{i}", *rng.choice(CALLS[kind]), rng.choice([0.1, 0.3]), rng.choice([1.0, 4.0]))
            for i in range(3)
        ),
        mishaps=settings.mishaps if rng.random() < 0.3 else (),
    )


def _anything(settings: Settings, rng: Random) -> Settings:
    members = _up_to(rng, settings.members)
    flushers = _up_to(rng, settings.flushers)
    collectors = _up_to(rng, settings.collectors)
    readers = rng.randint(0, settings.readers)
    counts = {"member": members, "flusher": flushers, "collector": collectors, "reader": readers}
    user = _some(settings.user, rng)
    if flushers and rng.random() < _RESTORES:
        user["restore"] = 0.5
    return replace(
        settings,
        partitions=rng.randint(2, max(2, settings.partitions)),
        keys=rng.choice([3, settings.keys]),
        skew=rng.choice([1, 1, 4]),
        records=rng.choice([settings.records // 4, settings.records // 2, settings.records]),
        burst_records=rng.choice([3, 12]),
        burst_s=rng.choice([0.3, 1.0]),
        seals=BRISK if rng.random() < 0.5 else None,
        members=members,
        flushers=flushers,
        collectors=collectors,
        readers=readers,
        history_window_s=rng.choice([0, 0, 1, 4]),
        grace_s=rng.choice([0, 0, 1, 2]),
        chaos={**_some(settings.chaos, rng), "none": 1.0},
        chaos_s=rng.choice([0.1, 0.3, 1.0]),
        user=user,
        user_s=rng.choice([0.1, 0.5, 2.0]),
        shared_keys=rng.choice([0, settings.shared_keys]),
        operator=settings.operator and rng.random() < 0.25,
        rates=Rates(
            put=rng.choice([0.0, 0.02, 0.1, 0.25]),
            listing=rng.choice([0.0, 0.2, 0.6, 0.9]),
            commit=rng.choice([0.0, 0.1, 0.3]),
            unavailable=rng.choice([0.0, 0.0, 0.01, 0.03]),
            lands=rng.choice([0.02, 0.05, 0.3]),
        ),
        delays=tuple(_delay(counts, rng) for _ in range(rng.randint(0, 3))),
        mishaps=tuple(
            Mishap(rng.choice(PLACES), act, rng.choice([0.02, 0.1, 0.4]))
            for act in ("crash", "freeze")
            for _ in range(rng.choice([0, 1, 2]))
        ),
        limits=rng.choice([None, Limits(page_at=4, page_rest=1, versions_kept=20)]),
        swarm=False,
    )


def _delay(counts: Mapping[str, int], rng: Random) -> Delay:
    """Some call of some process."""
    name = rng.choice([name for name, count in counts.items() if count])
    call = rng.choice(CALLS[name])
    return Delay(f"{name}{rng.randrange(counts[name])}", *call, rng.choice([0.05, 0.3]), rng.choice([0.3, 1.0, 5.0]))


def _up_to(rng: Random, most: int) -> int:
    return rng.randint(1, most) if most else 0


def _some(weights: Mapping[str, float], rng: Random) -> dict[str, float]:
    """Part of them, each with a weight of its own."""
    return {name: weight * rng.choice([0.3, 1.0, 3.0]) for name, weight in weights.items() if rng.random() < 0.7}
