"""Opening a catalog: by its address, or by the settings of a process."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from lancewal_core.catalog.catalog import Catalog
from lancewal_core.catalog.directory import DirectoryCatalog
from lancewal_core.errors import InvalidSettings, TableMissing
from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.tasks import Tasks, ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.store.obstore import open_store


def open_directory(
    root: str, options: Mapping[str, str] | None = None, tasks: Tasks | None = None, clock: Clock | None = None
) -> DirectoryCatalog:
    """Return the catalog in the folder ``root``.  ``options`` are Lance's storage options.

    ``InvalidSettings``: the address is not valid, or the local folder does not exist.
    """
    try:
        store = open_store(root, options)
    except TableMissing:
        raise InvalidSettings(
            f"there is no catalog at {root}: the folder does not exist. Correct catalog.root, or make the catalog by "
            "`lancewal catalog init`"
        ) from None
    return DirectoryCatalog(store, root, tasks or ThreadTasks(), clock or SystemClock(), lambda: uuid.uuid4().hex)


def catalog_of(settings: Settings, tasks: Tasks | None = None, clock: Clock | None = None) -> Catalog | None:
    """Return the catalog of the settings; None if they name none."""
    of = settings.catalog
    return open_directory(of.root, settings.storage.options, tasks, clock) if of.is_set else None
