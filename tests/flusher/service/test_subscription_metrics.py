"""Metrics and problems of subscriptions: names are bounded, and what cannot be read shows."""

from __future__ import annotations

from dataclasses import replace

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.process.clock import SystemClock
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.garbage.collect import GarbageReport
from lancewal_flusher.garbage.subscribed import KeptBySubscription
from lancewal_flusher.service.metrics import SUBSCRIPTIONS_SHOWN, FlusherMetrics

REPORT = GarbageReport((), (), {})


def shown(metrics: FlusherMetrics, name: str) -> dict[str, float]:
    """Samples of a metric, by subscription."""
    found = [sample for metric in metrics.registry.collect() for sample in metric.samples if sample.name == name]
    return {sample.labels["subscription"]: sample.value for sample in found}


def kept(lag_s: int) -> KeptBySubscription:
    return KeptBySubscription(lag_s * 1000, lag_s / 1000, True, lag_s + 1, lag_s + 2)


def test_of_many_subscriptions_the_first_hundred_have_series_of_their_own() -> None:
    metrics = FlusherMetrics(SystemClock(), "t", FlusherEvents())
    metrics.garbage(replace(REPORT, subscriptions={f"s{number:04}": kept(number) for number in range(250)}))
    lags = shown(metrics, "lancewal_flusher_subscription_lag_seconds")
    assert len(lags) == SUBSCRIPTIONS_SHOWN + 1
    assert (lags["s0000"], lags["s0099"], lags["other"]) == (0, 99, 249)
    assert shown(metrics, "lancewal_flusher_subscription_lag_ratio")["s0050"] == 0.05
    assert shown(metrics, "lancewal_flusher_subscription_held_segments")["other"] == 250
    assert shown(metrics, "lancewal_flusher_subscription_held_versions")["s0003"] == 5
    metrics.garbage(replace(REPORT, subscriptions={"s0003": kept(7)}))
    assert shown(metrics, "lancewal_flusher_subscription_lag_seconds") == {"s0003": 7}


def test_one_that_cannot_be_read_is_counted() -> None:
    metrics = FlusherMetrics(SystemClock(), "t", FlusherEvents())
    metrics.garbage(replace(REPORT, subscription_faults={"s": ObjectCorrupt("it is damaged", object="there")}))
    damaged = metrics.registry.get_sample_value("lancewal_flusher_damaged_subscriptions", {"table": "t"})
    failures = metrics.registry.get_sample_value(
        "lancewal_flusher_failures_total", {"table": "t", "kind": "object_corrupt"}
    )
    assert (damaged, failures) == (1, 1)
