"""Which contracts a drain is of; one that does not fit its contract is damage, named, wherever it is read."""

from __future__ import annotations

import pytest

from lancewal_core.errors import ContractMismatch, ObjectCorrupt, PartitionCountChanged
from lancewal_core.names import paths
from lancewal_core.names.ids import Position
from lancewal_core.process.clock import SystemClock
from lancewal_core.table.contract import Contract, encode_contract
from lancewal_core.table.drain import Drain, begin, check_open, close, drained_since, note_new, read_drain
from tests.golden.json_formats import CONTRACT
from tests.twins.memory_store import MemoryStore

CONTRACT_OF_TWO = CONTRACT.model_copy(update={"version": 1, "partitions": 2, "start": (0, 0), "altered_at": ()})


@pytest.mark.parametrize(("to", "new"), [((5,), ()), ((5, 5, 5), ()), ((5, 5), (2,)), ((5, 5), (-1,))])
def test_a_drain_of_other_partitions_is_named(to: tuple[int, ...], new: tuple[int, ...]) -> None:
    store, clock = MemoryStore(SystemClock()), SystemClock()
    drain = Drain(contract_version=CONTRACT_OF_TWO.version, partitions=3, to=to, new=new, write_id="x")
    store.put_if_absent(paths.drain_version(1, None), drain.encode())
    with pytest.raises(ObjectCorrupt, match=paths.drain_version(1, None)):
        read_drain(store, CONTRACT_OF_TWO)
    with pytest.raises(ObjectCorrupt, match=paths.drain_version(1, None)):
        begin(store, clock, lambda: "y", CONTRACT_OF_TWO, 3, [Position(9), Position(9)])


ENDS = [Position(10), Position(10)]
BESIDE: list[dict[str, object]] = [
    {"on_misrouted": "ignore"},
    {"history_window_s": 7},
    {"table_uuid": "moved", "place": "/there"},
]


def versions(*changes: dict[str, object]) -> tuple[MemoryStore, list[Contract]]:
    """A store with the contract and, one after another, versions of it with these changes."""
    store, found = MemoryStore(SystemClock()), [CONTRACT_OF_TWO]
    for change in changes:
        found.append(found[-1].model_copy(update={"version": found[-1].version + 1, **change}))
    for contract in found:
        store.put_if_absent(paths.contract_version(contract.version, None), encode_contract(contract))
    return store, found


@pytest.mark.parametrize("beside", BESIDE, ids=lambda change: next(iter(change)))
def test_versions_that_differ_beside_topic_and_partitions_have_one_drain(beside: dict[str, object]) -> None:
    store, contracts = versions(beside, beside)
    parts = store, SystemClock(), lambda: "x"
    for begins in contracts:
        for reads in contracts:
            begun = begin(*parts, begins, 3, ENDS)
            note_new(*parts, begins, begun, {0: Position(4)})
            found = read_drain(store, reads)
            assert found is not None
            assert (found.contract_version, found.to, found.new) == (1, (4, 10), (0,))
            check_open(reads, found)


@pytest.mark.parametrize("beside", BESIDE, ids=lambda change: next(iter(change)))
def test_what_is_closed_stays_closed_for_such_a_version(beside: dict[str, object]) -> None:
    store, (one, two) = versions(beside)
    parts = store, SystemClock(), lambda: "x"
    begun = begin(*parts, one, 3, ENDS)
    close(*parts, two, begun, begun)
    for contract in (one, two):
        with pytest.raises(PartitionCountChanged):
            begin(*parts, contract, 3, ENDS)
        found = read_drain(store, contract)
        assert found is not None
        assert found.closed


@pytest.mark.parametrize("change", [{"topic_id": "another"}, {"partitions": 3, "altered_at": (10, 10)}])
def test_other_partitions_have_another_drain(change: dict[str, object]) -> None:
    """Also where a later version names the former topic again; who works by the version before ends."""
    back = {name: getattr(CONTRACT_OF_TWO, name) for name in change}
    store, (one, two, three) = versions(change, back)
    parts = store, SystemClock(), lambda: "x"
    begin(*parts, one, 5, ENDS)
    assert [drained_since(store, contract) for contract in (one, two, three)] == [1, 2, 3]
    assert read_drain(store, two) is None
    assert read_drain(store, three) is None
    begin(*parts, two, 5, [Position(1)] * two.partitions)
    later = read_drain(store, one)
    assert later is not None
    with pytest.raises(PartitionCountChanged):
        check_open(one, later)
    with pytest.raises(ContractMismatch):
        close(*parts, three, later, later)
