"""Python's collector of cycles in an ingest process: it begins at fifty thousand new objects, not at seven hundred.

A poll brings some seventeen lists, tuples and the like for each partition.  They are in no cycle, and gone once their
segment is durable.  By default the collector looks at all of them several times, and so at each record that they hold.
The records then lie in no processor's cache.  Polls of 10,000 records of 512 partitions spend a sixth of the
processor's time on that (own measurement); polls of one partition spend nothing.
"""

from __future__ import annotations

import gc

_NEW_OBJECTS = 50_000
"""More than there are of two polls of a thousand partitions at a time, so that most are gone before they are looked at.  As
much garbage in cycles would take some MiB."""


def look_at_new_objects_rarely() -> None:
    """Let the collector look at new objects less often, for the rest of the process's life."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
