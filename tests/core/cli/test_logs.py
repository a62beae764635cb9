"""Lines of the log for people; those for programs: ``test_program``."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog

from lancewal_core.cli.logs import LogFormat, LogLevel, configure_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logging_put_back() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = before
    root.setLevel(level)


def logged(monkeypatch: pytest.MonkeyPatch, form: LogFormat = LogFormat.AUTO) -> list[str]:
    """Two lines as a terminal shows them."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    configure_logging(LogLevel.INFO, form)
    logger = structlog.get_logger()
    logger.info("merge_landed", message="A merge landed.", rows=3, place="a b", lines="x\n\x1b[2Jy")
    logging.getLogger("library").warning("careful")
    return terminal.getvalue().splitlines()


def test_on_a_terminal_lines_are_for_people_and_move_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, of_a_library = logged(monkeypatch)
    assert ours[8:] == ' info    merge_landed A merge landed. rows=3 place="a b" lines=x\\n\\x1b[2Jy'
    assert "warning careful" in of_a_library


@pytest.mark.parametrize(("form", "json"), [(LogFormat.JSON, True), (LogFormat.TEXT, False)])
def test_a_form_that_is_asked_for_is_taken_anywhere(
    monkeypatch: pytest.MonkeyPatch, form: LogFormat, json: bool
) -> None:
    assert [line.startswith("{") for line in logged(monkeypatch, form)] == [json, json]


@pytest.mark.parametrize("form", [LogFormat.JSON, LogFormat.TEXT])
def test_what_libraries_say_shows_no_secret(monkeypatch: pytest.MonkeyPatch, form: LogFormat) -> None:
    """In lines of their own, and in tracebacks of ours and of theirs."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logging(LogLevel.INFO, form)
    try:
        raise OSError("no answer of https://user:canary-1@host/a?sig=canary-2")
    except OSError:
        structlog.get_logger().info("failed", message="It failed.", exc_info=True)
        logging.getLogger("library").exception("at %s", "https://host/b?sig=canary-3")
    assert "canary" not in written.getvalue()
    assert written.getvalue().count("OSError: no answer of https://***@host/a?***") == 2
    assert "https://host/b?***" in written.getvalue()
