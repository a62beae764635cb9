"""``table alter --on``: every policy of a table can be altered, and those that newly send letters say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from lancewal_core.cli import program as cli
from lancewal_core.errors import KafkaUnavailable
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.table.contract import put_next, read_contract
from lancewal_core.wal.writer_schemas import WriterSchemas
from lancewal_ingest.append.job import Terms
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.service.table import IngestTable
from lancewal_kafka.topic import TopicFacts, TopicInspector
from lancewal_tables.define.alter import alter_terms
from tests.support.pipeline import SMALL, NoDeadLetters, Pipeline

POLICIES = [
    (term, policy)
    for term in TableSettings.model_fields
    if term.startswith("on_")
    for policy in get_args(TableSettings.model_fields[term].annotation)
]
EVENTS: dict[str, object] = {
    "value_format": "avro",
    "value_record": "shop.Order",
    "envelope": "debezium",
    "key_format": "avro",
    "region_key": ("region", "id"),
}


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, SMALL, partitions=1)
    try:
        yield made
    finally:
        made.close()


def has(pipeline: Pipeline, **terms: str) -> None:
    before = read_contract(pipeline.store, pipeline.uri)
    update = {**EVENTS, **terms, "format": 2, "version": before.version + 1}
    put_next(pipeline.store, pipeline.clock, before, before.model_copy(update=update))


@pytest.mark.parametrize(("term", "policy"), POLICIES)
def test_every_policy_is_altered(pipeline: Pipeline, term: str, policy: str) -> None:
    other = next(value for name, value in POLICIES if name == term and value != policy)
    has(pipeline, **{term: other})
    what = term.removeprefix("on_").replace("_", "-")
    assert cli.run(("table", "alter", "-t", pipeline.uri, "--on", f"{what}={policy}")) == 0
    assert getattr(read_contract(pipeline.store, pipeline.uri), term) == policy


class Silent(TopicInspector):
    def identify(self, topic: str) -> TopicFacts:
        raise KafkaUnavailable("no answer")


@pytest.mark.parametrize("term", ["on_bad_record", "on_misrouted", "on_other_record", "on_unavailable_value"])
def test_a_policy_that_newly_sends_letters_asks_for_their_topic(pipeline: Pipeline, term: str) -> None:
    none = dict.fromkeys(("on_bad_record", "on_misrouted", "on_other_record", "on_unavailable_value"), "ignore")
    has(pipeline, **none)
    settings, said = Settings(table=TableSettings(uri=pipeline.uri)), list[str]()
    silent = Silent({"bootstrap.servers": "127.0.0.1:9"})
    alter_terms(settings, {term: "dead-letter"}, silent, said.append)
    assert [text.partition(" the dead-letter topic ")[0] for text in said] == ["cannot find out whether"]


def test_running_ingest_gets_letters_for_a_policy_that_newly_sends_them(pipeline: Pipeline) -> None:
    """No policy has sent letters, so ingest has no topic for them, until it takes the newer contract up."""
    none = dict.fromkeys(("on_bad_record", "on_misrouted", "on_other_record", "on_unavailable_value"), "ignore")
    has(pipeline, **none)
    before = read_contract(pipeline.store, pipeline.uri)
    letters = NoDeadLetters()
    schemas = WriterSchemas(pipeline.store, before.making)
    context = SimpleNamespace(drain=None, stored_schemas=schemas)
    kafka = SimpleNamespace(dead_letters=lambda contract: letters)
    table: Any = SimpleNamespace(settings=Settings(), context=context, _kafka=kafka)
    terms = Terms(Preparer(before, schemas=schemas), NoDeadLetters())
    for term, made_again in (("history_window_s", False), ("on_unavailable_value", True), ("on_other_record", True)):
        value: object = "dead-letter" if term.startswith("on_") else 1
        newer = before.model_copy(update={term: value, "version": before.version + 1})
        assert (IngestTable._terms(table, newer, terms).dead_letters is letters) == made_again
