"""``lancewal table alter --topic-id``: where the new topic is taken up.  Against a real broker: ``tests/whole_path``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import lance
import pytest

from lancewal_core.errors import InvalidInput, InvalidSettings
from lancewal_core.names.ids import Sequence
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.state import GenerationState
from lancewal_core.settings.load import Settings
from lancewal_core.table.contract import read_contract
from lancewal_core.wal.walk import walk_trailers
from lancewal_kafka.topic import TopicState
from lancewal_tables.commands.alter_terms import start_of
from lancewal_tables.define.alter import rebind_topic
from tests.support.flusher_tables import FlusherTable, upserts
from tests.support.pipeline import Pipeline, by_key


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


def test_what_an_owner_has_in_flight_is_merged_first_or_meets_a_fence(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, partitions=2, seed=3, seal_rows=1_000, grace_s=0)
    pipeline.produce(40)
    pipeline.ingest()  # in open generations, which no merge takes
    settings = Settings.model_validate({"table": {"uri": pipeline.uri}, "kafka": {"bootstrap_servers": "nobody:1"}})
    inspector: Any = Inspector()
    held = pipeline.flusher().read_states()
    logs = {state.newest.log for state in held.values() if state.newest is not None}
    for look_only in (True, False):
        with pytest.raises(InvalidInput, match="are not merged yet"):
            rebind_topic(settings, "new-id", inspector, "latest", look_only=look_only)
        states = {state.newest.state for state in pipeline.flusher().read_states().values() if state.newest}
        assert states == ({GenerationState.OPEN} if look_only else {GenerationState.SEALED})
    pipeline.merge()  # without ingest: the former topic has no owner any more
    assert rebind_topic(settings, "new-id", inspector, "latest").topic_id == "new-id"
    assert by_key(cast("Any", lance.dataset(pipeline.uri)).to_table()) == pipeline.oracle
    assert logs
    assert None not in {walk_trailers(pipeline.store, ThreadTasks(1), log, Sequence(0)).fence for log in logs}
    pipeline.close()


def test_a_start_that_is_none() -> None:
    with pytest.raises(InvalidSettings, match=r"--start 'now'.*expected earliest, latest or a time with zone"):
        start_of("now")
