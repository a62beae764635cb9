"""Every log event of readers: name, level, fields, meaning.  docs/reference/log-events.md is generated from them.

Readers run inside other people's programs.  They log by Python's ``logging``, with the fields as text.  The command
line shows these events like those of the services.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from lancewal_core.process.event_table import Event, EventTable, info, warning

_LOGGER = logging.getLogger("lancewal.reader")


class ReaderEvents(EventTable):
    """Log events of readers.  ``partitions``: the partitions through which records of the keys came."""

    keys_left_out = warning(
        "Primary keys came through two partitions, and are left out until a decision (`lancewal conflict list`).",
        *("topic", "waiting_keys", "unmerged_keys", "partitions"),
    )

    fragments_compared = info(
        "Nothing shows where compactions or other commits put the rows of some fragments, so a change feed compares all of "
        "their rows.",
        *("from_version", "to_version", "fragments"),
    )

    def write(self, event: Event, fields: Mapping[str, object]) -> None:
        shown = ", ".join(f"{name}={value}" for name, value in fields.items())
        declared = {"event": event.name, "message": event.message, **fields}
        _LOGGER.log(
            logging.getLevelNamesMapping()[event.level.upper()],
            "%s %s",
            event.message,
            shown,
            extra={"lancewal": declared},
        )
