"""Log events as declarations: a table for each service says which events it has, and what each means.

A service's table is a class with a member for each event.  The member's name is the event's name: subject, then
participle:

    class WorkerEvents(EventTable):
        segment_stored = info("A segment is durable.", "rows", "bytes")

    events = WorkerEvents(table="orders")
    events.segment_stored(rows=3, bytes=120)

The call writes one JSON line with ``event`` (the name), ``message`` (the sentence), ``level`` and the fields.
``common`` are fields of every line.  ``WorkerEvents.declared()`` is what the reference page is made of.

Guarantees
 1. A name is declared once, with one level and one sentence.  A test checks that calls have no other fields than the
    declared ones: a service must not end because of a log line.
 2. A field that is None is left out: it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, overload

Level = Literal["debug", "info", "warning", "error"]


class Event:
    """A log event.  The class attribute is the declaration; the instance attribute is the function that logs the
    event.
    """

    def __init__(self, level: Level, message: str, fields: tuple[str, ...]) -> None:
        self.level = level
        self.message = message
        self.fields = fields
        self.name = ""

    def __set_name__(self, owner: type[EventTable], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, table: None, owner: type[EventTable]) -> Self: ...
    @overload
    def __get__(self, table: EventTable, owner: type[EventTable]) -> Callable[..., None]: ...
    def __get__(self, table: EventTable | None, owner: type[EventTable]) -> Self | Callable[..., None]:
        return self if table is None else partial(_log, table, self)


class EventTable:
    """Base class for a service's log events.  ``common``: fields that every line has, with their values."""

    def __init__(self, **common: object) -> None:
        import structlog  # with what it imports for itself, when something may be logged

        self._log: Any = structlog.get_logger(**common)

    @classmethod
    def declared(cls) -> Sequence[Event]:
        """Return the events that this class itself declares, in the order of the source."""
        return [member for member in vars(cls).values() if isinstance(member, Event)]

    def write(self, event: Event, fields: Mapping[str, object]) -> None:
        """Write one line to the program's log.  ``fields``: the event's own fields."""
        getattr(self._log, event.level)(event.name, message=event.message, **fields)


def _log(table: EventTable, event: Event, **fields: object) -> None:
    table.write(event, {name: value for name, value in fields.items() if value is not None})


def debug(message: str, *fields: str) -> Event:
    """Declare an event that helps to find a fault."""
    return Event("debug", message, fields)


def info(message: str, *fields: str) -> Event:
    """Declare an event of normal work."""
    return Event("info", message, fields)


def warning(message: str, *fields: str) -> Event:
    """Declare an event that somebody should know of.  The work goes on."""
    return Event("warning", message, fields)


def error(message: str, *fields: str) -> Event:
    """Declare an event after which some work has ended, or waits for a person."""
    return Event("error", message, fields)
