"""Metrics as declarations: every sample has the table's label, and a table that extends another has the metrics of both."""

from __future__ import annotations

import pytest

from lancewal_core.process.metric_table import MetricTable, counter, gauge, histogram, info


class Process(MetricTable, prefix="lancewal"):
    build = info("Which it is.", "service")


class Worker(Process, prefix="lancewal_worker"):
    rows = counter("Rows.", "partition")
    bytes = gauge("Bytes.")
    seconds = histogram("Time.", (1.0,))


def test_every_sample_but_that_of_an_info_has_the_tables_label() -> None:
    metrics = Worker("orders")
    metrics.build.labels("worker").info({})
    metrics.rows.labels("3").inc(2)
    metrics.bytes.set(7)
    metrics.seconds.observe(0.5)
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    table = ("table", "orders")
    assert samples == {
        ("lancewal_build_info", ("service", "worker")): 1,
        ("lancewal_worker_rows_total", ("partition", "3"), table): 2,
        ("lancewal_worker_bytes", table): 7,
        ("lancewal_worker_seconds_bucket", ("le", "1.0"), table): 1,
        ("lancewal_worker_seconds_bucket", ("le", "+Inf"), table): 1,
        ("lancewal_worker_seconds_count", table): 1,
        ("lancewal_worker_seconds_sum", table): 0.5,
    }


def test_what_is_declared_has_the_labels_of_a_scrape() -> None:
    declared = {metric.name: metric.labels for table in (Process, Worker) for metric in table.declared()}
    assert declared == {
        "lancewal_build_info": ("service",),
        "lancewal_worker_rows_total": ("table", "partition"),
        "lancewal_worker_bytes": ("table",),
        "lancewal_worker_seconds": ("table",),
    }


class Counted(MetricTable, prefix="lancewal_counted"):
    claims = counter("Claims.", "outcome", known=("won", "lost"))
    swaps = counter("Swaps.", "operation", "outcome", known=(("put", "taken"),))
    last_timestamp_seconds = gauge("When it last was.")
    seen_timestamp_seconds = gauge("When it was seen.", "partition")
    rows = counter("Rows.", "partition", "kind")
    position = gauge("Where it is.", "partition")
    age_seconds = gauge("How old it is.", "partition")
    stopped = gauge("Whether it is.", "partition")
    wait_seconds = histogram("Time.", (1.0,), "partition")


def shown(metrics: MetricTable) -> dict[str, float]:
    return {
        " ".join([sample.name, *(f"{k}={v}" for k, v in sample.labels.items() if k != "table")]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_a_counter_begins_at_0_and_a_time_is_absent_until_it_is_set() -> None:
    metrics = Counted("orders")
    assert shown(metrics) == {
        "lancewal_counted_claims_total outcome=won": 0,
        "lancewal_counted_claims_total outcome=lost": 0,
        "lancewal_counted_swaps_total operation=put outcome=taken": 0,
    }
    metrics.last_timestamp_seconds.set(1_700_000_000)
    metrics.seen_timestamp_seconds.labels("1").set(1_600_000_000)
    metrics.position.labels("1").set(0)
    known = shown(metrics)
    assert known["lancewal_counted_last_timestamp_seconds"] == 1_700_000_000
    assert known["lancewal_counted_seen_timestamp_seconds partition=1"] == 1_600_000_000
    assert known["lancewal_counted_position partition=1"] == 0


@pytest.mark.parametrize("per_partition", [True, False])
def test_partitions_are_told_apart_or_summed(per_partition: bool) -> None:
    metrics = Counted("orders", per_partition=per_partition)
    for partition, (seen, position, age, stopped) in {"0": (200, 5, 3.0, 1), "1": (100, 7, 9.0, 1)}.items():
        metrics.seen_timestamp_seconds.labels(partition).set(seen)
        metrics.rows.labels(partition, "a").inc(position)
        metrics.rows.labels(partition, "b").inc(1)
        metrics.position.labels(partition).set(position)
        metrics.age_seconds.labels(partition).set(age)
        metrics.stopped.labels(partition).set(stopped)
        metrics.wait_seconds.labels(partition).observe(age)
    found = shown(metrics)
    summed = {
        "lancewal_counted_seen_timestamp_seconds": 100,
        "lancewal_counted_rows_total kind=a": 12,
        "lancewal_counted_rows_total kind=b": 2,
        "lancewal_counted_position": 12,
        "lancewal_counted_age_seconds": 9,
        "lancewal_counted_stopped": 2,
        "lancewal_counted_wait_seconds_bucket le=1.0": 0,
        "lancewal_counted_wait_seconds_bucket le=+Inf": 2,
        "lancewal_counted_wait_seconds_sum": 12,
        "lancewal_counted_wait_seconds_count": 2,
    }
    of_partitions = {
        name: value
        for name, value in found.items()
        if not name.startswith(("lancewal_counted_claims", "lancewal_counted_swaps"))
    }
    if per_partition:
        assert all("partition=" in name for name in of_partitions)
        assert found["lancewal_counted_age_seconds partition=1"] == 9
        assert found["lancewal_counted_rows_total partition=0 kind=a"] == 5
    else:
        assert of_partitions == summed


def test_a_table_that_would_hide_a_metric_of_another_is_refused() -> None:
    with pytest.raises(TypeError, match="two metrics called rows"):

        class Twice(Worker, prefix="lancewal_twice"):
            rows = counter("Other rows.")
