"""Metrics as declarations: every sample has the table's label, and a table that extends another has the metrics of both."""

from __future__ import annotations

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
