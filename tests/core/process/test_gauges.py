"""Gauges of which label values come and go, and what is scraped meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from lancewal_core.process.metric_table import show_only

Shown = dict[tuple[str, ...], float]


def shown(gauge: Gauge) -> Shown:
    return {tuple(s.labels.values()): s.value for metric in gauge.collect() for s in metric.samples}


def test_what_stays_is_in_every_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    gauge = Gauge("rows", "Rows.", ("table", "index"), registry=CollectorRegistry())
    show_only(gauge, {("t", "old"): 1, ("t", "kept"): 2})
    assert shown(gauge) == {("t", "old"): 1, ("t", "kept"): 2}
    scrapes: list[Shown] = []

    def scraped_behind(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **named: Any) -> Any:
            result = call(*arguments, **named)
            scrapes.append(shown(gauge))
            return result

        return made

    for name in ("labels", "remove", "remove_by_labels", "clear"):
        monkeypatch.setattr(gauge, name, scraped_behind(getattr(gauge, name)))
    show_only(gauge, {("t", "kept"): 3, ("t", "new"): 4})
    assert len(scrapes) > 2
    assert all(scrape[("t", "kept")] in (2, 3) for scrape in scrapes)
    assert shown(gauge) == {("t", "kept"): 3, ("t", "new"): 4}
    show_only(gauge, {})
    assert shown(gauge) == {}
