"""Settings and start of a process that runs no ``main`` of lancewal: an executor or a planner of Spark.

Spark shows options, plans and settings in logs and on its web pages, so credentials travel in none of them.  The driver
and every executor have their own credentials, as the services do.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Mapping

from lancewal_core.process import failpoints


def storage_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``storage.options`` of the settings that the environment names; empty if it names none.

    Options that are not set there (``AWS_ACCESS_KEY_ID``, a role, ...) are found by Lance and the WAL reader
    themselves.
    """
    # What the section was called once is no silent nothing: ``load_settings`` names it.
    ours = ("LANCEWAL_STORAGE__", "LANCEWAL_STORE__")
    if not any(n.startswith(ours) or n in ("LANCEWAL_CONFIG", "LANCEWAL_SECRETS_DIR") for n in environ):
        return {}
    from lancewal_core.settings.load import load_settings

    return dict(load_settings(None, environ).storage.options)


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
