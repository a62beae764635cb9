"""Pauses of services, as an operator sets and ends them."""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core.names.ids import Making
from lancewal_core.process.clock import Clock
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.control import Control, Service, end_of_pause, set_pause


def pause(
    store: ObjectStore,
    clock: Clock,
    new_id: Callable[[], str],
    service: Service,
    making: Making | None,
    for_s: float | None = None,
) -> Control:
    """Pause ``service`` from now for ``for_s`` seconds, or until it is resumed."""
    return set_pause(store, clock, new_id, service, end_of_pause(clock, for_s), making)


def resume(
    store: ObjectStore, clock: Clock, new_id: Callable[[], str], service: Service, making: Making | None
) -> Control:
    """End the pause of ``service``."""
    return set_pause(store, clock, new_id, service, None, making)
