"""docs/reference/log-events.md lists every log event, as the tables declare them.

``python -m tests.deploy.test_log_events_page`` writes the page's tables.
"""

from __future__ import annotations

from pathlib import Path

from lancewal_core.process.event_table import Event, EventTable
from lancewal_core.process.service_events import ServiceEvents
from lancewal_flusher.event_table import FlusherEvents
from lancewal_ingest.event_table import IngestEvents
from lancewal_reader.event_table import ReaderEvents

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "log-events.md"
HEADER = ["| event | level | fields | meaning |", "|---|---|---|---|"]
TABLES: dict[str, type[EventTable]] = {
    "## Both services": ServiceEvents,
    "## Ingest": IngestEvents,
    "## Flusher": FlusherEvents,
    "## Reader": ReaderEvents,
}


def line(event: Event) -> str:
    return f"| `{event.name}` | {event.level} | {', '.join(event.fields)} | {event.message} |"


def made(page: str) -> str:
    """The page with the tables as they are declared, behind what else stands under their headings."""
    lines = page.splitlines()
    for heading, table in TABLES.items():
        begin = lines.index(heading) + 1
        end = next((i for i in range(begin, len(lines)) if lines[i].startswith("## ")), len(lines))
        text = [said for said in lines[begin:end] if said and not said.startswith("|")]
        rows = [*HEADER, *map(line, table.declared())]
        lines[begin:end] = ["", *text, *([""] if text else []), *rows, *([""] if end < len(lines) else [])]
    return "\n".join(lines) + "\n"


def test_the_page_has_every_event_as_it_is_declared() -> None:
    assert PAGE.read_text() == made(PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
