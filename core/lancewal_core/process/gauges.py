"""Gauges of which some label values come and go.

Guarantee of ``show_only``: a scrape in between finds every label value that had a sample before and has one afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Gauge


def show_only(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
    """Make these all that the gauge shows: a value for each tuple of label values, in the order of the gauge's labels."""
    for labels, value in values.items():
        gauge.labels(*labels).set(value)
    for sample in [sample for metric in gauge.collect() for sample in metric.samples]:
        if tuple(sample.labels.values()) not in values:
            gauge.remove_by_labels(sample.labels)
