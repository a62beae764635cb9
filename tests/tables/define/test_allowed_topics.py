"""Whoever can write into a table's folder names another table's topic in its contract: every door refuses it.

The brokers of the settings do not answer: who would ask them gets another error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import lance
import pytest

from lancewal_audit.repair.context import opened as opened_for_repair
from lancewal_audit.verify.verification import VerifyRequest, verify_table
from lancewal_core.errors import ContractMismatch, KafkaUnavailable
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.table.contract import put_next
from lancewal_flusher.open import open_context as open_flusher
from lancewal_ingest.append.job import Terms
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.context import open_context as open_ingest
from lancewal_ingest.kafka.dead_letters import KafkaDeadLetters
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_ingest.service.process import _dead_letters
from lancewal_ingest.service.table import IngestTable
from lancewal_kafka.topic import TopicFacts, TopicInspector
from lancewal_tables.define.alter import alter_partitions, alter_terms, rebind_topic
from lancewal_tables.define.attach import attach_table
from lancewal_tables.define.create import create_table
from lancewal_tables.status.of_kafka import look_at_kafka
from lancewal_tables.status.status import table_status
from tests.flusher.table_settings import content, table_settings
from tests.support.pipeline import NoDeadLetters
from tests.tables.define.test_copies import ROWS, NoBroker

SILENT = "127.0.0.1:1"
FOREIGN = ({"dead_letter_topic": "payments"}, {"topic": "payments"})
"""What somebody else's contract says: bad records become another table's rows, or another topic is read."""


def allowing(folder: Path, *topics: str, **table: object) -> Settings:
    settings = table_settings(folder, SILENT, "orders", **{"columns": {}, **table})
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"topics": topics})})


def unsaid(settings: Settings) -> Settings:
    """The same of a process whose settings name no topic beside those that are allowed."""
    return settings.model_copy(update={"table": settings.table.model_copy(update={"topic": ""})})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "table"
    lance.write_dataset(ROWS, str(made))
    attach_table(allowing(made, "orders", "orders.dead-letters"), cast("TopicInspector", NoBroker()))
    return made


def rewrite(folder: Path, terms: dict[str, str]) -> None:
    """A new contract, as by a hand that knows the format."""
    address = Address(str(folder))
    old = address.contract()
    put_next(address.store(), SystemClock(), old, old.model_copy(update={**terms, "version": old.version + 1}))


@contextlib.contextmanager
def tasks_of() -> Iterator[ThreadTasks]:
    with closing(ThreadTasks(workers=1)) as tasks:
        yield tasks


def ingest(settings: Settings) -> None:
    with tasks_of() as tasks:
        open_ingest(settings, tasks, SystemClock())


def flusher(settings: Settings) -> None:
    with open_flusher(settings, on_threads=True):
        pass


def repair(settings: Settings) -> None:
    with opened_for_repair(settings):
        pass


def verify(settings: Settings) -> None:
    verify_table(settings, settings.table.uri, VerifyRequest(sources="topic"))


DOORS: dict[str, Callable[[Settings], object]] = {
    "ingest, offset reject": ingest,
    "flusher": flusher,
    "repair": repair,
    "verify": verify,
    "alter --partitions": partial(alter_partitions, partitions=3),
    "alter --topic-id": partial(rebind_topic, topic_id="another"),
}


@pytest.mark.parametrize("terms", FOREIGN, ids=["dead letters", "topic"])
@pytest.mark.parametrize("door", DOORS.values(), ids=list(DOORS))
def test_no_door_takes_another_topic(folder: Path, door: Callable[[Settings], object], terms: dict[str, str]) -> None:
    settings = unsaid(allowing(folder, "orders", "orders.dead-letters"))
    rewrite(folder, terms)
    with pytest.raises(ContractMismatch, match=r"LANCEWAL_KAFKA__TOPICS.*does not allow .*'payments'"):
        door(settings)


@pytest.mark.parametrize("terms", FOREIGN, ids=["dead letters", "topic"])
def test_verify_compares_the_topics_of_the_table(folder: Path, terms: dict[str, str]) -> None:
    rewrite(folder, terms)
    key = "topic" if "topic" in terms else "dead_letter_topic"
    settings = allowing(folder, dead_letter_topic="orders.dead-letters")
    with pytest.raises(ContractMismatch, match=rf"table\.{key} .*the table's contract says 'payments'"):
        verify(settings)


@pytest.mark.parametrize("look_only", [False, True])
@pytest.mark.parametrize("topics", [("orders",), ("orders.dead-letters",), ("payments*",)])
@pytest.mark.parametrize("make", [create_table, attach_table])
def test_no_table_is_made_of_a_topic_that_is_not_allowed(
    tmp_path: Path, make: Callable[..., object], topics: tuple[str, ...], look_only: bool
) -> None:
    place = tmp_path / "new"
    if make is attach_table:
        lance.write_dataset(ROWS, str(place))
    before = content(place)
    settings = allowing(place, *topics, columns={"region": "string", "id": "int64"})
    with pytest.raises(ContractMismatch, match="does not allow"):
        make(settings, cast("TopicInspector", NoBroker()), look_only=look_only)
    assert content(place) == before


def test_status_names_it_once_and_asks_no_broker(folder: Path) -> None:
    settings = unsaid(allowing(folder, "orders", "orders.dead-letters"))
    look = partial(look_at_kafka, settings, uri=str(folder), now_ms=0, timeout_s=0.2)
    allowed = look(contract=Address(str(folder)).contract()).failure
    assert allowed is not None
    assert allowed.kind == KafkaUnavailable.kind
    rewrite(folder, {"topic": "payments"})
    refused = look(contract=Address(str(folder)).contract()).failure
    assert refused is not None
    assert refused.kind == ContractMismatch.kind
    said = [problem for problem in table_status(settings, str(folder)).problems if "kafka.topics" in problem]
    assert len(said) == 1


def test_a_running_ingest_takes_up_no_dead_letter_topic_that_is_not_allowed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(KafkaDeadLetters, "check", lambda letters: asked.append(letters.topic))
    settings = unsaid(allowing(folder, "orders*"))
    with tasks_of() as tasks:
        context = open_ingest(settings, tasks, SystemClock())

        def prepare(settings: Settings, letters: str) -> None:
            newer = context.contract.model_copy(update={"dead_letter_topic": letters, "version": 2})
            letters_of = partial(_dead_letters, settings, "group", cast("IngestMetrics", None))
            kafka = SimpleNamespace(dead_letters=letters_of)
            terms = Terms(Preparer(context.contract), NoDeadLetters())
            worker = SimpleNamespace(terms=terms)
            table: Any = SimpleNamespace(settings=settings, context=context, _kafka=kafka, worker=worker)
            table._terms = partial(IngestTable._terms, table)
            IngestTable.prepare(table, newer)

        bound = allowing(folder, dead_letter_topic="orders.dead-letters")
        for refusing, says in ((settings, "does not allow 'payments'"), (bound, "table.dead_letter_topic")):
            with pytest.raises(ContractMismatch, match=says):
                prepare(refusing, "payments")
        assert asked == []


def test_an_allowed_topic_leads_out_and_another_is_not_named(folder: Path) -> None:
    settings = unsaid(allowing(folder, "orders*"))
    with pytest.raises(ContractMismatch, match=r"nothing was changed.*does not allow 'payments'"):
        alter_terms(settings, {"dead_letter_topic": "payments"})
    rewrite(folder, {"dead_letter_topic": "payments"})
    assert alter_terms(settings, {"dead_letter_topic": "orders.rejected"}).dead_letters == "orders.rejected"
    for door in (ingest, flusher, repair):
        door(settings)


class Silent(TopicInspector):
    def identify(self, topic: str) -> TopicFacts:
        raise KafkaUnavailable("no answer")


def test_brokers_that_cannot_be_asked_hold_up_no_change(folder: Path) -> None:
    settings, said = unsaid(allowing(folder, "orders*")), list[str]()
    silent = Silent({"bootstrap.servers": "127.0.0.1:9"})
    assert alter_terms(settings, {"dead_letter_topic": "orders.bad"}, silent, said.append).dead_letters == "orders.bad"
    assert said == ["cannot find out whether the dead-letter topic 'orders.bad' exists: no answer"]


def test_what_becomes_of_unknown_columns_is_altered(folder: Path) -> None:
    """Older releases refuse the version by name."""
    settings = unsaid(allowing(folder, "orders*"))
    altered = alter_terms(settings, {"on_unknown_column": "ignore", "format": 2})
    assert (altered.on_unknown_column, altered.format, altered.columns_unchanged) == ("ignore", 2, True)
