"""A table that is gone, or another one at its place, is told from a store that does not answer."""

from __future__ import annotations

import pytest

from lancewal_core.errors import StoreInconsistent, StoreUnavailable, TableMissing, TableReplaced
from lancewal_core.names import paths
from lancewal_core.names.ids import Making
from lancewal_core.process.clock import SystemClock
from lancewal_core.table.contract import contract_family, encode_contract
from lancewal_core.table.presence import Presence, check_present
from tests.core.table.test_contract import CONTRACT
from tests.twins.memory_store import MemoryStore


@pytest.mark.parametrize("making", [None, Making("0a1b")], ids=["without a making", "with one"])
@pytest.mark.parametrize("version", [1, 2])
def test_a_table_is_there_gone_or_another_one(making: Making | None, version: int) -> None:
    store = MemoryStore(SystemClock())
    first = CONTRACT.model_copy(update={"making": making, "version": 1})
    ours = first.model_copy(update={"version": version})
    key = paths.contract_version(1, None)
    for contract in {1: first, version: ours}.values():
        store.put_if_absent(contract_family(making).key(contract.version), encode_contract(contract))
    presence = Presence(store, ours)
    presence.look()
    presence.check()
    store.delete([key])
    if making is None and version > 1:  # version 1 of such a table may have been deleted by hand
        presence.look()
        presence.check()
        store.delete([paths.contract_version(version, None)])
    presence.look_again()
    assert presence.gone
    store.put_if_absent(key, encode_contract(first))  # which this process does not believe
    for _ in range(2):
        with pytest.raises(TableMissing, match=rf"was deleted while this process worked on it: {key} is gone"):
            presence.check()
        presence.look()
    store.delete([key])
    store.put_if_absent(key, encode_contract(first.model_copy(update={"making": "0c2d"})))
    with pytest.raises(TableReplaced, match="another table was made at"):
        check_present(store, ours)


class Silent(MemoryStore):
    def get(self, key: str) -> bytes | None:
        raise StoreUnavailable("no answer")


class AnswersByItself(MemoryStore):
    """Behind a proxy that answers 404 for each object while the store is away."""

    def get(self, key: str) -> bytes | None:
        return None


def test_a_store_that_does_not_answer_says_nothing_of_a_table() -> None:
    key = paths.contract_version(1, None)
    for kind, error in ((Silent, StoreUnavailable), (AnswersByItself, StoreInconsistent)):
        store = kind(SystemClock())
        store.put_if_absent(key, encode_contract(CONTRACT))
        presence = Presence(store, CONTRACT)
        with pytest.raises(error):
            presence.look()
        presence.look_again()
        presence.check()
