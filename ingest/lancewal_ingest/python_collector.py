"""Python's collector of cycles in an ingest process: it begins at fifty thousand new objects, not at seven hundred.

What a poll brings is some seventeen lists, tuples and the like for each partition, gone once its segment is durable and in no
cycle.  By default the collector looks at all of them, and so at each record that they hold, several times while it lies in no
processor's cache: of polls of 10,000 records of 512 partitions a sixth of the processor's time (own measurement); of one
partition nothing.
"""

from __future__ import annotations

import gc

_NEW_OBJECTS = 50_000
"""More than there are of two polls of a thousand partitions at a time, so that most are gone before they are looked at.  As
much garbage in cycles would take some MiB."""


def look_at_new_objects_rarely() -> None:
    """For the rest of the process's life."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
