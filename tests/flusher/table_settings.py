"""What the tests of table commands share: topics at the broker, settings, and a folder's content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import KafkaSettings, TableSettings
from tests.support.topics import make_topics

COLUMNS = {
    "region": "string",
    "id": "int64",
    "place": "struct<lat: float64, tags: list<string>>",
    "vector": "fixed_size_list<float32>[4]",
    "at": "timestamp[us, UTC]",
}


def make_topic(servers: str, topic: str, partitions: int = 3, config: Mapping[str, str] | None = None) -> None:
    make_topics(servers, {topic: partitions}, config)


def table_settings(folder: Path, servers: str, topic: str, **table: Any) -> Settings:
    """Settings of a table with ``COLUMNS``; ``table`` overrides keys of its section."""
    section: dict[str, Any] = {
        "uri": str(folder),
        "topic": topic,
        "columns": COLUMNS,
        "primary_key": ("region", "id"),
        "region_key": ("region",),
        **table,
    }
    return Settings(
        table=TableSettings.model_validate(section),
        kafka=KafkaSettings(bootstrap_servers=servers),
    )


def content(folder: Path) -> dict[str, bytes] | None:
    """Every file below the folder with its bytes; None if there is no folder."""
    if not folder.exists():
        return None
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
