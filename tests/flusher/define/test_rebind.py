"""``lancewal table alter --topic-id``: where the new topic is taken up.  Against a real broker: ``tests/whole_path``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.errors import InvalidSettings
from lancewal_core.settings.load import Settings
from lancewal_core.table.contract import read_contract
from lancewal_flusher.commands.alter_terms import start_of
from lancewal_flusher.define.alter import rebind_topic
from lancewal_kafka.topic import TopicState
from tests.support.flusher_tables import FlusherTable, upserts


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(5)))
    made.round()
    yield made
    made.close()


class Inspector:
    """Of a topic made anew, with records of a backup in it."""

    def describe(self, topic: str) -> TopicState:
        return TopicState(topic, "new-id", 2, False)

    def starts(self, topic: TopicState, start: object) -> tuple[int, ...]:
        assert start == "latest"
        return (7, 3)


@pytest.mark.parametrize(("start", "positions"), [("earliest", (0, 0)), ("latest", (7, 3))])
def test_a_topic_is_taken_up_where_a_person_says(table: FlusherTable, start: Any, positions: tuple[int, ...]) -> None:
    settings = Settings.model_validate({"table": {"uri": table.uri}, "kafka": {"bootstrap_servers": "nobody:1"}})
    inspector: Any = Inspector()
    looked = rebind_topic(settings, "new-id", inspector, start, look_only=True)
    assert (looked.version, looked.start) == (2, positions)
    assert read_contract(table.store, table.uri).version == 1
    assert rebind_topic(settings, "new-id", inspector, start) == looked


def test_a_start_that_is_none() -> None:
    with pytest.raises(InvalidSettings, match=r"--start 'now'.*expected earliest, latest or a time with zone"):
        start_of("now")
