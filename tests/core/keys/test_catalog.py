"""The newest catalog, where several threads look at it."""

from __future__ import annotations

from lancewal_core.errors import Corrupt, StoreInconsistent
from lancewal_core.keys.catalog import EMPTY, KeyCatalogs
from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock
from tests.twins.memory_store import MemoryStore


class BesideAnother(KeyCatalogs):
    """Another thread sees a sound catalog right behind each look of this one."""

    @property
    def problem(self) -> Corrupt | StoreInconsistent | None:
        return None

    @problem.setter
    def problem(self, problem: object) -> None: ...


def test_a_damaged_catalog_is_not_an_empty_one_whatever_another_thread_sees() -> None:
    """What collects garbage would take every part for one that nobody names."""
    store = MemoryStore(SystemClock())
    catalogs = BesideAnother(store, SystemClock(), None)
    assert catalogs.read_sound() == EMPTY
    store.put_if_absent(paths.key_catalog_version(1, None), b"damaged")
    assert catalogs.read_sound() is None
    assert catalogs.read_sound() is None, "nor where it is known"
    assert catalogs.read() == EMPTY
