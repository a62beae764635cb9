"""Settings, variables and metrics that pages, runbooks, alerts and the chart name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from lancewal import Table
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import is_metadata
from tests.layering.source import ROOT, RULES
from tests.layering.test_layering import project_files
from tests.watch.declared import series

FOLDERS = ("docs/", "helm/", "compose/", "watch/")
FILES = ("README.md", "ARCHITECTURE.md", "docker-compose.yml")
HISTORY = ("docs/decisions/",)
"""Records of the past name what was there then."""
SECTIONS = frozenset(Settings.model_fields)
SETTING = re.compile(rf"(?<![\w./-])(?:{'|'.join(sorted(SECTIONS))})(?:\.[a-z]\w*)+(?![\w(/-])")
VARIABLE = re.compile(r"(?<![\w$])LANCEWAL_(?!IT_)[A-Z][A-Z0-9_]*[A-Z0-9]")
METRIC = re.compile(r"(?<![\w./-])lancewal_[a-z0-9_]*[a-z0-9](?![\w./-])")
FILE_ENDINGS = frozenset({"py", "md", "yaml", "yml", "json", "toml", "txt", "log"})


OF_OTHERS = ("kafka.bootstrap.servers", "table.include.list")
"""Options of Spark's sink of Kafka, and of Debezium's connectors."""


def setting_exists(name: str) -> bool:
    """Whether it is a setting, a value of the chart, a member of ``Table``, metadata of records, of others, or a file."""
    first, *rest = name.split(".")
    if is_metadata(name) or name in ("kafka.header", *OF_OTHERS):
        return True
    if rest[-1] in FILE_ENDINGS or (first == "table" and hasattr(Table, rest[0])):
        return True
    return in_settings(Settings, [first, *rest]) or in_values(VALUES, [first, *rest])


def in_settings(section: Any, names: list[str]) -> bool:
    for name in names:
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            return True  # a mapping with names of others, or members of a value
        if name not in section.model_fields:
            return False
        section = section.model_fields[name].annotation
    return True


def in_values(values: Any, names: list[str]) -> bool:
    for name in names:
        if not isinstance(values, Mapping) or not values:
            return True
        if name not in values:
            return False
        values = values[name]
    return True


VALUES = yaml.safe_load((ROOT / "helm/lancewal/values.yaml").read_text())


OF_KUBERNETES = frozenset({"LANCEWAL_SERVICE_HOST", "LANCEWAL_PORT"})
"""Kubernetes sets them in a pod beside a service that is called lancewal.  The pages warn of them."""


def variable_exists(name: str) -> bool:
    parts = name.removeprefix("LANCEWAL_").lower().split("__")
    return name in OF_KUBERNETES or parts[0].upper() in Settings.BESIDE or in_settings(Settings, parts)


def metric_exists(name: str) -> bool:
    return name in RULES or name in METRICS or f"{name}_bucket" in METRICS


METRICS = series()


def texts() -> Iterator[tuple[str, str]]:
    for file in map(str, project_files()):
        if (file.startswith(FOLDERS) or file in FILES) and not file.startswith(HISTORY):
            yield file, (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("pattern", "exists", "least"),
    [
        pytest.param(SETTING, setting_exists, 100, id="settings"),
        pytest.param(VARIABLE, variable_exists, 10, id="variables"),
        pytest.param(METRIC, metric_exists, 100, id="metrics"),
    ],
)
def test_what_is_named_exists(pattern: re.Pattern[str], exists: Any, least: int) -> None:
    named = [(file, found) for file, text in texts() for found in pattern.findall(text)]
    assert len(named) >= least
    assert "\n".join(sorted({f"{file}: {name}" for file, name in named if not exists(name)})) == ""


@pytest.mark.parametrize(
    ("exists", "there", "gone"),
    [
        pytest.param(setting_exists, "ingest.linger_ms", "ingest.linger_s", id="setting"),
        pytest.param(setting_exists, "table.format.key", "table.format.keys", id="setting in a setting"),
        pytest.param(setting_exists, "kafka.options.acks", "kafka.option.acks", id="name of others"),
        pytest.param(setting_exists, "ingest.replicas", "ingest.replica", id="value of the chart"),
        pytest.param(setting_exists, "table.scan", "table.scans", id="member of Table"),
        pytest.param(variable_exists, "LANCEWAL_INGEST__LINGER_MS", "LANCEWAL_INGEST_LINGER_MS", id="variable"),
        pytest.param(variable_exists, "LANCEWAL_CONFIG", "LANCEWAL_CONFIGS", id="variable beside"),
        pytest.param(metric_exists, "lancewal_store_requests_total", "lancewal_store_requests", id="metric"),
    ],
)
def test_a_name_that_is_gone_is_seen(exists: Any, there: str, gone: str) -> None:
    assert exists(there)
    assert not exists(gone)
