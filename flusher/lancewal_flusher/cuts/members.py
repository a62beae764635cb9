"""Open the tables of a cut, each by its entry in the catalog."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from lancewal_core.catalog.entry import TableEntry
from lancewal_core.errors import LancewalError
from lancewal_core.open import Address
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.store.object_store import ObjectStore
from lancewal_flusher.cuts.positions import CutMember, named
from lancewal_flusher.open import Threads, open_on


def open_member(
    settings: Settings,
    entry: TableEntry,
    threads: Threads,
    stack: ExitStack,
    cache_bytes_max: int,
    observed: Callable[[ObjectStore], ObjectStore] = lambda store: store,
) -> CutMember:
    """Open the table of a catalog entry.  ``stack`` closes it.  ``observed`` wraps its store.  Errors name the table.

    ``cache_bytes_max`` limits the unmerged segments that are kept in memory for its reads.
    """
    from lancewal_reader.table import reads_of

    of = settings
    try:
        store = observed(Address.of(settings, entry.uri).store())  # an address that lancewal does not take ends here
        if entry.uri != settings.table.uri:
            section = TableSettings.model_validate({"uri": entry.uri, "base_paths": settings.table.base_paths})
            of = settings.model_copy(update={"table": section})
        context = open_on(of, threads, stack, on_threads=True, store=store)
    except LancewalError as error:
        raise named(entry.name, error) from error
    return CutMember(entry.name, context, reads_of(context, entry.uri, cache_bytes_max))
