"""What a process without a ``main`` of ours (an executor of Spark, its planner) takes from its environment.

Spark shows options, plans and settings in logs and on its web pages, so credentials travel in none of them: the driver and
every executor have their own, as the services do.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from lancewal_core import failpoints


def storage_options(environ: Mapping[str, str]) -> dict[str, str]:
    """``store.options`` of the settings that the environment names; empty where it names none.

    What is not said there (``AWS_ACCESS_KEY_ID``, a role, ...) Lance and the WAL reader look up by themselves.
    """
    if not any(n.startswith("LANCEWAL_STORE__") or n in ("LANCEWAL_CONFIG", "LANCEWAL_SECRETS_DIR") for n in environ):
        return {}
    from lancewal_core.settings import load_settings

    return dict(load_settings(None, environ).store.options)


@functools.cache
def configure_event_log() -> None:
    """The first task of a process reads where events go; failpoints act in processes with a ``main`` only."""
    path = os.environ.get("LANCEWAL_EVENT_LOG")
    if path:
        failpoints.configure({"LANCEWAL_EVENT_LOG": path})
