"""Figures from a line of librdkafka's statistics, and from a client that tells less."""

from __future__ import annotations

import json

from lancewal_ingest.kafka.statistics import NOTHING_TOLD, ClientFigures, client_figures

TOLD = {
    "rx_bytes": 5_000,
    "rxmsgs": 70,
    "brokers": {
        "one:9092/1": {
            "nodeid": 1, "state": "UP", "txerrs": 1, "rxerrs": 2, "req_timeouts": 4,
            "rtt": {"p99": 12_000}, "throttle": {"max": 30},
        },
        "two:9092/2": {
            "nodeid": 2, "state": "DOWN", "txerrs": 8, "rxerrs": 0, "req_timeouts": 0,
            "rtt": {"p99": 250_000}, "throttle": {"max": 0},
        },
        "one:9092/bootstrap": {"nodeid": -1, "state": "UP"},
    },
    "topics": {
        "t": {"partitions": {"0": {"fetchq_cnt": 3, "fetchq_size": 300}, "1": {"fetchq_cnt": 4, "fetchq_size": 20}}},
    },
    "cgrp": {"rebalance_cnt": 6},
}  # fmt: skip


def test_brokers_and_partitions_are_put_together() -> None:
    assert client_figures(json.dumps(TOLD)) == ClientFigures(
        connected_brokers=1,
        round_trip_s=0.25,
        throttle_s=0.03,
        request_failures_total=15,
        received_bytes_total=5_000,
        received_records_total=70,
        fetch_queue_bytes=320,
        fetch_queue_records=7,
        rebalances_total=6,
    )


def test_what_is_not_told_is_0() -> None:
    assert client_figures("{}") == NOTHING_TOLD
