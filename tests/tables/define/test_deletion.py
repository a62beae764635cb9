"""The deletion of a dropped table stops if its folder is another table's by now."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lancewal_core.errors import LancewalError, TableMissing, TableReplaced
from lancewal_core.names import paths
from lancewal_core.names.ids import Making
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.store.object_store import ObjectInfo
from lancewal_core.table.contract import Contract, TableDrop, contract_family, encode_contract
from lancewal_tables.define import drop
from lancewal_tables.define.drop import delete_objects
from tests.golden.json_formats import CONTRACT
from tests.twins.memory_store import MemoryStore

OURS, OTHER = Making("0a1b"), Making("0c2d")
MADE = CONTRACT.model_copy(update={"making": OURS, "version": 1})
DROPPED = MADE.model_copy(update={"format": 2, "version": 2, "drop": TableDrop(since_ms=1, deleting=True)})
MANIFESTS = [f"{paths.VERSIONS}{number}.manifest" for number in range(5)]
DATA = [f"{paths.DATA}{number}.lance" for number in range(5)]


class RemovedMeanwhile(MemoryStore):
    """Somebody removes the folder while its manifests are listed, and may make another table there."""

    other: Contract | None = None
    removed = False

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        found = super().list(prefix, limit, after)
        if self.removed and prefix == paths.VERSIONS:
            super().delete([info.key for info in super().list("")])
            for contract in [] if self.other is None else [self.other]:
                put(self, contract)
        return found


def put(store: MemoryStore, *contracts: Contract) -> None:
    """Put the contracts of a table, and its other objects."""
    for contract in contracts:
        store.put_if_absent(contract_family(contract.making).key(contract.version), encode_contract(contract))
    for key in (*MANIFESTS, *DATA):
        store.put_if_absent(key, b"x")


def keys(store: MemoryStore) -> set[str]:
    return {info.key for info in store.list("")}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> RemovedMeanwhile:
    monkeypatch.setattr(drop, "_AT_ONCE", 2)
    made = RemovedMeanwhile(SystemClock())
    put(made, MADE, DROPPED)
    return made


def test_contracts_alone_stay(store: RemovedMeanwhile) -> None:
    assert delete_objects(store, ThreadTasks(), DROPPED) == len(MANIFESTS) + len(DATA)
    assert keys(store) == {paths.contract_version(1, None), paths.contract_version(2, OURS)}


@pytest.mark.parametrize(
    ("other", "error"), [(None, TableMissing), (MADE.model_copy(update={"making": OTHER}), TableReplaced)]
)
def test_nothing_of_another_table_is_deleted(
    store: RemovedMeanwhile, other: Contract | None, error: type[LancewalError]
) -> None:
    store.other, store.removed = other, True
    with pytest.raises(error):
        delete_objects(store, ThreadTasks(), DROPPED)
    store.removed = False
    assert keys(store) == (set() if other is None else {paths.contract_version(1, None), *MANIFESTS, *DATA})
