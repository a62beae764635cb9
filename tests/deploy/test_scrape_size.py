"""A scrape of a topic with 1,000 partitions stays small, whatever all of them have to show; summed it does not follow them."""

from __future__ import annotations

import pytest
from prometheus_client import Counter, Gauge, generate_latest

from lancewal_core.process.metric_table import Declared, MetricTable
from lancewal_flusher.service.metric_table import FlusherMetricTable
from lancewal_ingest.service.metric_table import IngestMetricTable

PARTITIONS = 1_000
BYTES_MAX = 2_000_000
SUMMED_BYTES_MAX = 50_000
TABLE = "a-table-whose-name-is-about-as-long-as-names-get"
VALUE = 1_234_567_890.123


def scrape(service: type[MetricTable], partitions: int, *, per_partition: bool) -> int:
    """Bytes, where every metric has a sample of every partition."""
    table = service(TABLE, per_partition=per_partition)
    shown = 0
    for part in service.__mro__:
        for name, member in vars(part).items():
            if isinstance(member, Declared) and "partition" in member.labels:
                shown += 1
                metric = table.metrics[name]
                for partition in range(partitions):
                    one = metric.labels(**dict.fromkeys(member.labels, "invalid_value") | {"partition": partition})
                    match one:
                        case Counter():
                            one.inc(VALUE)
                        case Gauge():
                            one.set(VALUE)
                        case _:
                            one.observe(VALUE)
    assert shown >= 5
    return len(generate_latest(table.registry))


@pytest.mark.parametrize("service", [IngestMetricTable, FlusherMetricTable])
def test_a_scrape_of_a_thousand_partitions_is_bounded(service: type[MetricTable]) -> None:
    assert 100_000 < scrape(service, PARTITIONS, per_partition=True) < BYTES_MAX


@pytest.mark.parametrize("service", [IngestMetricTable, FlusherMetricTable])
def test_summed_it_does_not_follow_the_partitions(service: type[MetricTable]) -> None:
    few, many = (scrape(service, partitions, per_partition=False) for partitions in (2, PARTITIONS))
    assert many < SUMMED_BYTES_MAX
    assert many < 1.05 * few
