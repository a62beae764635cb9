"""Which consumer group takes the records."""

from __future__ import annotations

import pytest

from lancewal_core.errors import ContractChanged, FormerGroup, OtherGroup
from lancewal_core.names.ids import Making
from lancewal_core.process.clock import SystemClock
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract, contract_family, encode_contract, read_contract
from lancewal_ingest.kafka.consumer_group import check_group, take_group
from tests.golden.json_formats import CONTRACT
from tests.twins.memory_store import MemoryStore

CLOCK = SystemClock()


def put(store: ObjectStore, contract: Contract) -> Contract:
    store.put_if_absent(contract_family(contract.making).key(contract.version), encode_contract(contract))
    return contract


@pytest.fixture(params=[None, Making("0a1b")], ids=["without a making", "with one"])
def contract(request: pytest.FixtureRequest) -> Contract:
    return CONTRACT.model_copy(update={"making": request.param})


@pytest.fixture
def store(contract: Contract) -> MemoryStore:
    made = MemoryStore(CLOCK)
    put(made, contract)
    return made


def test_the_first_that_comes_writes_its_own(store: MemoryStore, contract: Contract) -> None:
    taken = take_group(store, CLOCK, contract, "ours")
    assert taken == contract.model_copy(update={"version": 2, "group_id": "ours"})
    assert read_contract(store, "t") == taken
    # Another member of the group that has read the contract before, and one that reads it now.
    for known in (contract, taken):
        assert take_group(store, CLOCK, known, "ours") == taken
    for known in (contract, taken):
        with pytest.raises(OtherGroup, match=r"by the consumer group 'ours', .* is 'theirs': .*alter --group theirs"):
            take_group(store, CLOCK, known, "theirs")
    assert read_contract(store, "t") == taken


def test_the_former_group_waits_and_any_other_ends(contract: Contract) -> None:
    moved = contract.model_copy(update={"group_id": "new", "former_group_id": "former"})
    check_group(moved, "new")
    check_group(contract, "any")
    with pytest.raises(FormerGroup, match="'new' now, and no longer by this process's, 'former'"):
        check_group(moved, "former")
    with pytest.raises(OtherGroup):
        check_group(moved, "another")


def test_a_contract_that_was_altered_meanwhile_is_read_again(store: MemoryStore, contract: Contract) -> None:
    put(store, contract.model_copy(update={"version": 2, "grace_s": 7}))
    with pytest.raises(ContractChanged, match="grace_s"):
        take_group(store, CLOCK, contract, "ours")
    newest = read_contract(store, "t")
    assert (newest.group_id, newest.grace_s) == ("ours", 7)
    assert take_group(store, CLOCK, newest, "ours") == newest
