"""Settings and start of a process that runs no ``main`` of lancewal: an executor or a planner of Spark.

Spark shows options, plans and settings in logs and on its web pages, so credentials travel in none of them.  The driver
and every executor have their own credentials, as the services do.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lancewal_core.process import failpoints

if TYPE_CHECKING:
    from lancewal_core.settings.load import Settings


def storage_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``storage.options`` of the settings that the environment names; empty if it names none.

    Options that are not set there (``AWS_ACCESS_KEY_ID``, a role, ...) are found by Lance and the WAL reader
    themselves.
    """
    # What the section was called once is no silent nothing: ``load_settings`` names it.
    settings = _settings(environ, "LANCEWAL_STORAGE__", "LANCEWAL_STORE__")
    return {} if settings is None else dict(settings.storage.options)


def catalog_password(environ: Mapping[str, str]) -> str:
    """Return ``catalog.password`` of the settings that the environment names; empty if it names none."""
    settings = _settings(environ, "LANCEWAL_CATALOG__")
    return "" if settings is None else settings.catalog.password


def _settings(environ: Mapping[str, str], *ours: str) -> Settings | None:
    """Return the settings; None unless a variable begins with one of ``ours`` or names a file or a folder of
    settings."""
    if not any(n.startswith(ours) or n in ("LANCEWAL_CONFIG", "LANCEWAL_SECRETS_DIR") for n in environ):
        return None
    from lancewal_core.settings.load import load_settings

    return load_settings(None, environ)


@functools.cache
def start_worker() -> None:
    """Set up a worker of Spark in the first task of its process.  The event log is configured from the environment, but no
    failpoint is.

    PySpark collects garbage after every task, and each time looks through all that is loaded: 0.05 s with pyarrow and
    Lance (Spark 4.3).  Objects that exist by now stay, so they are taken out of that search.
    """
    gc.collect()
    gc.freeze()
    path = os.environ.get("LANCEWAL_EVENT_LOG")
    if path:
        failpoints.configure({"LANCEWAL_EVENT_LOG": path})
