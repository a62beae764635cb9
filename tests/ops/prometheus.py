"""A real Prometheus on 127.0.0.1, that scrapes once a second, with the plain rules, their times shortened."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from lancewal_demo.stack import Process
from lancewal_demo.stack.ports import free_ports
from tests.ops.stage import SCRAPE_S
from tests.ops.tools import program
from watch.alerts.alert import Alert, Value
from watch.alerts.rules import plain_rules

Sample = Mapping[str, float]
"""Labels as text -> value."""


class Prometheus:
    """Runs inside ``with``."""

    def __init__(
        self, folder: Path, targets: Mapping[str, Sequence[int]], shortened: Mapping[str, Mapping[str, Value]]
    ) -> None:
        """``targets``: job -> ports; ``shortened``: alert -> values that differ."""
        (self._port,) = free_ports(1)
        self._folder = folder
        self._targets = targets
        self._shortened = shortened
        self._process: Process | None = None

    def __enter__(self) -> Self:
        def changed(alert: Alert) -> Mapping[str, Value]:
            return {"for": "1s", **self._shortened.get(alert.name, {})}

        (self._folder / "rules.yml").write_text(yaml.safe_dump(plain_rules(changed), sort_keys=False))
        jobs = [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
            for job, ports in self._targets.items()
        ]
        settings = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": "1s", "scrape_timeout": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": jobs,
        }
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        self._process = Process(
            [
                program("prometheus"),
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._folder / 'series'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--log.level=warn",
            ],
            self._folder / "prometheus.log",
        )
        self._process.wait_until(self._ready, "Prometheus", 60.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.stop()

    def query(self, expression: str) -> Sample:
        """Each series' labels and value now; empty: no data.  NaN is no value."""
        found = self._get("/api/v1/query", query=expression)["result"]
        values = {json.dumps(one["metric"], sort_keys=True): float(one["value"][1]) for one in found}
        return {name: value for name, value in values.items() if value == value}

    def firing(self) -> frozenset[str]:
        """Names of the alerts that fire."""
        return frozenset(
            a["labels"]["alertname"] for a in self._get("/api/v1/alerts")["alerts"] if a["state"] == "firing"
        )

    def fired_within(self, seconds: float) -> frozenset[str]:
        """Names of the alerts that fired at some time in these seconds, also if they do not any more."""
        window = max(1, round(seconds))
        found = self.query(f'count by (alertname) (max_over_time(ALERTS{{alertstate="firing"}}[{window}s]))')
        return frozenset(json.loads(labels)["alertname"] for labels in found)

    def broken_rules(self) -> list[str]:
        groups = self._get("/api/v1/rules")["groups"]
        return [
            f"{rule['name']}: {rule['lastError']}"
            for group in groups
            for rule in group["rules"]
            if rule.get("lastError")
        ]

    def _get(self, path: str, **query: str) -> Any:
        address = f"http://127.0.0.1:{self._port}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)["data"]

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
