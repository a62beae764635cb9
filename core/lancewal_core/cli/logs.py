"""Logs on stderr: JSON lines, or on a terminal lines for people.

Guarantee: text from outside moves no cursor and fakes no line, in either form (``output``).  Text of libraries shows
no secret (``without_secrets``).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from enum import StrEnum
from typing import Any, TextIO, cast

from lancewal_core.cli.output import one_line
from lancewal_core.cli.progress_line import ProgressLine
from lancewal_core.cli.unused_imports import without_rich
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.library_errors import without_secrets
from lancewal_core.process.progress import listen


class LogLevel(StrEnum):
    """Level of the least severe events that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """``AUTO``: lines for people on a terminal, JSON otherwise."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


def configure_logging(level: LogLevel, form: LogFormat = LogFormat.AUTO) -> None:
    """Configure the logs of structlog, and of libraries that use ``logging``.  On a terminal, steps of long work are
    shown from now on."""
    with without_rich():
        import structlog  # only once a command runs

    number = logging.getLevelNamesMapping()[level.value.upper()]
    stream, terminal = _stderr()
    readable = form is LogFormat.TEXT or (form is LogFormat.AUTO and terminal)
    renderer: Any = _readable if readable else structlog.processors.JSONRenderer(default=str)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _of_tracebacks,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared, _of_libraries],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)


def _stderr() -> tuple[TextIO, bool]:
    """Return the stream of the log, and whether it is a terminal.

    On a terminal, show steps from now on: the stream keeps the log and the progress line apart.  Otherwise show no
    steps.
    """
    if not sys.stderr.isatty():
        listen(None)
        return sys.stderr, False
    line = ProgressLine(sys.stderr, SystemClock())
    listen(line)
    return cast("TextIO", line), True


def _of_tracebacks(_: object, __: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    if "exception" in line:
        line["exception"] = without_secrets(str(line["exception"]))
    return line


def _of_libraries(_: object, __: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Put the text of a library's log line into ``message``, since such a line has no ``event``.  Lines that
    lancewal itself writes through ``logging`` bring the fields of a declared event."""
    line["message"] = without_secrets(line.pop("event"))
    return {**line, **getattr(line["_record"], "lancewal", {})}


def _readable(_: object, __: str, line: MutableMapping[str, Any]) -> str:
    """Return an event as lines for people: time, level, event and message, then the other fields; a traceback below."""
    fields = dict(line)
    traceback = str(fields.pop("exception", ""))
    first = [str(fields.pop(name, "")) for name in ("timestamp", "level", "event", "message")]
    said = [
        f"{first[0][11:19]} {first[1]:7}",
        *filter(None, first[2:]),
        *(f"{k}={_value(v)}" for k, v in fields.items()),
    ]
    return "\n".join([one_line(" ".join(said)), *map(one_line, traceback.splitlines())])


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and (" " in text or not text) else text
