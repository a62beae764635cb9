"""Python's cyclic garbage collector in an ingest process: it starts at 50,000 new objects, far above Python's default.

A poll creates about seventeen lists, tuples and similar objects for each partition.  They are not in cycles, and are
freed once their segment is durable.  By default the collector visits all of them, and each record that they hold,
several times.  By then the records are no longer in the processor's cache.  For polls of 10,000 records of 512
partitions the collector takes a sixth of the processor time (own measurement); for polls of one partition, none.
"""

from __future__ import annotations

import gc

_NEW_OBJECTS = 50_000
"""More objects than two polls of a thousand partitions create, so that most are freed before a collection.  This many
objects in garbage cycles would take a few MiB."""


def look_at_new_objects_rarely() -> None:
    """Raise the threshold at which Python's garbage collector examines new objects, for the rest of the process's
    life."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
