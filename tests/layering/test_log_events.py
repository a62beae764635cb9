"""Log events are those of the tables: each that is logged is declared with its fields, each that is declared is logged.

An event is logged as a method of a table, which is called ``events`` wherever it is, or is made on the spot.  Nothing else
makes a logger of its own but for what librdkafka says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from lancewal_core.errors import LancewalError
from lancewal_core.process.event_table import Event, EventTable
from lancewal_core.process.service_events import ServiceEvents, place_of
from lancewal_flusher.event_table import FlusherEvents
from lancewal_ingest.event_table import IngestEvents
from lancewal_reader.event_table import ReaderEvents
from tests.layering.source import RULES, modules
from tests.public.rules import NOT_IN_NAMES, UNITS

TABLES: dict[str, type[EventTable]] = {
    "lancewal_core": ServiceEvents,
    "lancewal_ingest": IngestEvents,
    "lancewal_flusher": FlusherEvents,
    "lancewal_reader": ReaderEvents,
}
LOG_BY = {"lancewal_flusher": ("lancewal_tables",)}
"""Packages that log by the table of another one."""
PLACE = frozenset({"topic", "partition", "offset", "object"})
SPREAD = {"place": PLACE, "region.place": frozenset({"topic", "partition"})}
"""Fields of what may stand behind ``**``: the place of an error, and that of a region."""
NOT_HERE = NOT_IN_NAMES | {"count", "log", "seconds", "total"}
"""Words for which there are others."""
MAKES_A_LOGGER = {
    "lancewal_core.cli.logs",
    "lancewal_core.process.event_table",
    "lancewal_demo.producer",
    "lancewal_ingest.kafka.consumer",
    "lancewal_ingest.kafka.dead_letters",
    "lancewal_kafka.reread",
    "lancewal_reader.event_table",
}


@dataclass(frozen=True, slots=True)
class Logged:
    """A call that logs an event.  ``spread``: what stands behind ``**``."""

    name: str
    fields: frozenset[str]
    spread: tuple[str, ...]


def logged(tree: ast.AST) -> Iterator[Logged]:
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if re.fullmatch(r"(.*\.)?_?events|\w+Events\(.*\)", ast.unparse(call.func.value)):
            fields = frozenset(keyword.arg for keyword in call.keywords if keyword.arg is not None)
            spread = tuple(ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg is None)
            yield Logged(call.func.attr, fields, spread)


def all_of(table: type[EventTable]) -> Mapping[str, Event]:
    """Those of the table, and of the one that it extends."""
    classes = [cls for cls in reversed(table.__mro__) if issubclass(cls, EventTable)]
    return {event.name: event for cls in classes for event in cls.declared()}


def wrong_with(call: Logged, declared: Mapping[str, Event]) -> list[str]:
    event = declared.get(call.name)
    if event is None:
        return [f"{call.name} is not declared"]
    wrong = [f"{call.name} has no field {field}" for field in sorted(call.fields - set(event.fields))]
    for spread in call.spread:
        if spread not in SPREAD:
            wrong.append(f"{call.name}: nobody knows the fields of {spread}")
        elif not set(event.fields) >= SPREAD[spread]:
            wrong.append(f"{call.name} has not all fields of a {spread}")
    return wrong


def calls_of(part: str) -> list[Logged]:
    files = [file for package in (part, *LOG_BY.get(part, ())) for file in modules(package).values()]
    return [call for file in files for call in logged(ast.parse(file.read_text()))]


@pytest.mark.parametrize("part", TABLES)
def test_what_is_logged_is_declared(part: str) -> None:
    declared = all_of(TABLES[part])
    assert [wrong for call in calls_of(part) for wrong in wrong_with(call, declared)] == []


def test_what_is_declared_is_logged_with_each_of_its_fields() -> None:
    calls = [call for part in TABLES for call in calls_of(part)]
    for event in (event for table in TABLES.values() for event in table.declared()):
        of_it = [call for call in calls if call.name == event.name]
        given = {
            field for call in of_it for fields in (call.fields, *map(SPREAD.get, call.spread)) for field in fields or ()
        }
        assert (event.name, bool(of_it), set(event.fields) - given) == (event.name, True, set())


def test_names_follow_the_rules() -> None:
    """Snake case, several words; fields with the unit last, and the words of the other surfaces."""
    for name, event in ((name, event) for table in TABLES.values() for name, event in all_of(table).items()):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name)
        assert event.message.endswith(".")
        assert len(set(event.fields)) == len(event.fields)
        for field in event.fields:
            words = field.removesuffix("_max").split("_")
            wrong = (UNITS & set(words[:-1])) | (NOT_HERE & set(words))
            assert not wrong, f"{name}: {field}"


def test_a_service_does_not_declare_anew_what_every_service_has() -> None:
    names = [event.name for table in TABLES.values() for event in table.declared()]
    assert sorted(names) == sorted(set(names))


def test_nobody_else_makes_a_logger() -> None:
    makes = {
        name
        for part in RULES
        for name, file in modules(part).items()
        if re.search(r"\bget_?[lL]ogger\(|^\s*(import structlog|from structlog)", file.read_text(), re.MULTILINE)
    }
    assert makes == MAKES_A_LOGGER


def test_a_place_has_nothing_else() -> None:
    error = LancewalError("text", topic="t", partition=1, offset=7, object="o", key="secret")
    assert place_of(error).keys() == PLACE


def test_the_rules_are_seen_to_be_broken() -> None:
    source = """
self.events.partition_opened(topic=1, region=2)
metrics.events.nothing_known()
IngestEvents(table="t").operation_failed(**place)
context.events.wal_fenced(**place)
context.events.wal_fenced(**region.place)
events.drain_begun(**what)
self.metrics.round(1)
"""
    found = [wrong for call in logged(ast.parse(source)) for wrong in wrong_with(call, all_of(IngestEvents))]
    assert found == [
        "partition_opened has no field region",
        "nothing_known is not declared",
        "wal_fenced has not all fields of a place",
        "wal_fenced has not all fields of a region.place",
        "drain_begun: nobody knows the fields of what",
    ]
