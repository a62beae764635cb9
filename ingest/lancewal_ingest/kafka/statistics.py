"""Figures that Kafka's client reports of itself, from librdkafka's statistics (documented in its STATISTICS.md).

Only the figures that a person needs when no records arrive are read.  They show whether brokers are reached, how fast
they answer, how much is fetched and waits, and how often the group was rebalanced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

INTERVAL_MS = 5_000
_US = 1_000_000
_MS = 1_000


@dataclass(frozen=True, slots=True)
class ClientFigures:
    """Figures of one client, summed over all brokers and partitions.  Names with ``_total`` count since the client was
    created.
    """

    connected_brokers: int
    round_trip_s: float
    """Seconds of a request's round trip to the slowest broker, 99th percentile of the last interval
    (``statistics.interval.ms``); 0 without requests."""
    throttle_s: float
    """Longest time in seconds that a broker throttled this client in the last interval (``statistics.interval.ms``)."""
    request_failures_total: int
    """Requests that were not sent, not answered in time, or answered with unreadable bytes."""
    received_bytes_total: int
    received_records_total: int
    fetch_queue_bytes: int
    fetch_queue_records: int
    rebalances_total: int


NOTHING_TOLD = ClientFigures(0, 0.0, 0.0, 0, 0, 0, 0, 0, 0)


def client_figures(text: str) -> ClientFigures:
    """Return the figures in librdkafka's statistics, a JSON text.  A figure that this version does not report is 0."""
    told: Mapping[str, Any] = json.loads(text)
    brokers = list(told.get("brokers", {}).values())
    partitions = [p for topic in told.get("topics", {}).values() for p in topic.get("partitions", {}).values()]
    return ClientFigures(
        connected_brokers=sum(b.get("state") == "UP" and b.get("nodeid", -1) >= 0 for b in brokers),
        round_trip_s=max((b.get("rtt", {}).get("p99", 0) for b in brokers), default=0) / _US,
        throttle_s=max((b.get("throttle", {}).get("max", 0) for b in brokers), default=0) / _MS,
        request_failures_total=sum(b.get(name, 0) for b in brokers for name in ("txerrs", "rxerrs", "req_timeouts")),
        received_bytes_total=told.get("rx_bytes", 0),
        received_records_total=told.get("rxmsgs", 0),
        fetch_queue_bytes=sum(p.get("fetchq_size", 0) for p in partitions),
        fetch_queue_records=sum(p.get("fetchq_cnt", 0) for p in partitions),
        rebalances_total=told.get("cgrp", {}).get("rebalance_cnt", 0),
    )
