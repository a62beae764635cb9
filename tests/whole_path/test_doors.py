"""Bad input at each door: the real program, one line that says what to do, the right exit code, and nothing changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal
from tests.whole_path.feed import COLUMNS

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

CREATE = ("table", "create")
INGEST = ("ingest", "run")
FLUSH = ("merge",)


@dataclass(frozen=True, slots=True)
class Door:
    """A command, what is wrong with its settings, and what it must say."""

    command: tuple[str, ...]
    kind: str
    says: tuple[str, ...]
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    code: int = 2


# FILE, PLAIN, TOPIC, COMPACTED and PORT stand for what a fixture has made: see ``filled``.
DOORS = {
    "unknown setting": Door(CREATE, "invalid_settings", ("table.primary_keys", "table.primary_key"),
                            {"table": {"primary_keys": ["id"]}}),
    "unknown setting, ingest": Door(INGEST, "invalid_settings", ("ingest.seal_row", "ingest.seal_rows"),
                                    {"ingest": {"seal_row": 5}}),
    "unknown setting, flusher": Door(FLUSH, "invalid_settings", ("flusher.merge_intervall_s", "flusher.merge_interval_s"),
                                     {"flusher": {"merge_intervall_s": 5}}),
    "column type": Door(CREATE, "invalid_settings", ("table.columns", "amount", "float65"),
                        {"table": {"columns": {**COLUMNS, "amount": "float65"}}}),
    "primary key not a column": Door(CREATE, "invalid_schema", ("table.primary_key", "number"),
                                     {"table": {"primary_key": ["customer", "number"]}}),
    "region key not in the primary key": Door(CREATE, "invalid_schema", ("table.region_key", "status"),
                                              {"table": {"region_key": ["status"]}}),
    "topic missing": Door(CREATE, "topic_missing", ("'no-such-topic'", "create it"),
                          {"table": {"topic": "no-such-topic"}}),
    "compacted, key is a part": Door(CREATE, "topic_unsuitable", ("COMPACTED", "region key", "primary key"),
                                     {"table": {"topic": "COMPACTED", "patches": False}}),
    "compacted, patches": Door(CREATE, "topic_unsuitable", ("COMPACTED", "patches"),
                               {"table": {"topic": "COMPACTED", "region_key": ["customer", "id"]}}),
    "broker down": Door(CREATE, "kafka_unavailable", ("PORT", "kafka.bootstrap_servers"),
                        {"kafka": {"bootstrap_servers": "127.0.0.1:PORT"}}, code=3),
    "store not writable": Door(CREATE, "store_not_writable", ("FILE",), {"table": {"uri": "FILE/table"}}),
    "table missing, ingest": Door(INGEST, "table_missing", ("no table", "TABLE")),
    "table missing, flusher": Door(FLUSH, "table_missing", ("no table", "TABLE")),
    "a plain Lance table, ingest": Door(INGEST, "not_a_lancewal_table", ("PLAIN", "table attach"),
                                        {"table": {"uri": "PLAIN"}}),
    "a plain Lance table, flusher": Door(FLUSH, "not_a_lancewal_table", ("PLAIN", "table attach"),
                                         {"table": {"uri": "PLAIN"}}),
    "a plain Lance table, create": Door(CREATE, "table_exists", ("PLAIN", "table attach"), {"table": {"uri": "PLAIN"}}),
    "read what is not there": Door(("read", "-t", "TABLE"), "table_missing", ("TABLE",)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """What the doors' placeholders stand for."""

    folder: Path
    servers: str
    names: Mapping[str, str]

    def filled(self, value: Any) -> Any:
        match value:
            case str():
                for name, text in self.names.items():
                    value = value.replace(name, text)
                return value
            case dict():
                return {name: self.filled(item) for name, item in value.items()}
            case list() | tuple():
                return [self.filled(item) for item in value]
        return value


@pytest.fixture
def place(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> Place:
    topic, compacted = f"{topic_name[-40:]}-plain".strip("-"), f"{topic_name[-40:]}-compacted".strip("-")
    make_topics(kafka.bootstrap_servers, {topic: 2})
    make_topics(kafka.bootstrap_servers, {compacted: 2}, {"cleanup.policy": "compact"})
    stores = tmp_path / "stores"
    stores.mkdir()
    (stores / "file").write_bytes(b"in the way")
    lance.write_dataset(pa.table({"customer": ["a"], "id": [1]}), str(stores / "plain"))
    (port,) = free_ports(1)
    names = {
        "TABLE": str(stores / "table"),
        "PLAIN": str(stores / "plain"),
        "FILE": str(stores / "file"),
        "COMPACTED": compacted,
        "TOPIC": topic,
        "PORT": str(port),
    }
    return Place(stores, kafka.bootstrap_servers, names)


@pytest.mark.parametrize("name", DOORS)
def test_bad_input(name: str, place: Place, tmp_path: Path) -> None:
    door = DOORS[name]
    tree: dict[str, dict[str, Any]] = {
        "table": {
            "uri": "TABLE",
            "topic": "TOPIC",
            "on_bad_record": "stop",
            "columns": dict(COLUMNS),
            "primary_key": ["customer", "id"],
            "region_key": ["customer"],
        },
        "kafka": {"bootstrap_servers": place.servers},
        "ingest": {},
        "flusher": {},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    for section, changes in door.sections.items():
        tree[section].update(changes)
    lancewal = Lancewal(tmp_path, place.filled(tree))
    files, topics, groups = state(place)
    answer = lancewal.run(*place.filled(door.command))
    assert answer.code == door.code, answer.err
    lines = answer.err.splitlines()
    assert len(lines) == 1, answer.err
    assert lines[0].startswith(f"lancewal: {door.kind}: ")
    for text in place.filled(door.says):
        assert text in lines[0]
    assert answer.out == ""
    files_after, topics_after, groups_after = state(place)
    assert files_after == files
    # The broker is shared: groups that earlier tests left empty vanish whenever it tidies up.
    assert topics_after - topics == groups_after - groups == set()
    assert {place.names["TOPIC"], place.names["COMPACTED"]} <= topics_after


def state(place: Place) -> tuple[dict[str, bytes], set[str], set[str]]:
    """Files, topics and consumer groups."""
    files = {str(f.relative_to(place.folder)): f.read_bytes() for f in place.folder.rglob("*") if f.is_file()}
    admin = AdminClient({"bootstrap.servers": place.servers, "log_level": 2})
    topics = set(admin.list_topics(timeout=30).topics)
    groups = {group.group_id for group in admin.list_consumer_groups().result(30).valid}
    return files, topics, groups
