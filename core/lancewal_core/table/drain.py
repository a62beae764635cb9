"""Draining: how far ingest takes the contract's partitions while the topic has more partitions.

Producers that know the new number send keys elsewhere, and nothing orders a key's records in two partitions.  So first
the rest of the old partitions becomes durable and is merged by the old number.  Then ``lancewal table alter`` changes
the contract.  Ingest and ``alter`` must agree where the old number ends, whatever is produced meanwhile and whoever was
frozen.  That end is written down here, as versioned objects (``paths.drain_version``).

Guarantees
 1. Under the old contract nothing becomes durable after ``to`` of any version that a process has read, except entries
    without rows over records that Kafka has lost.
 2. Once the drain is closed for a contract, no later version of it is written, and no later claim leads to a record.  A
    process that claims a region reads the drain after the claim, before it writes (``check_open``).  ``alter`` ends the
    logs of those who claimed before.  Its findings after that stay true, whatever Kafka has lost meanwhile and whoever
    was frozen.
 3. A partition in ``new`` has at ``to`` a record that belongs there by the topic's number and not by the contract's: no
    process that works by the contract passes this record.
 4. A drain is of a topic and its number of partitions.  Versions of the contract that differ in other terms (policies
    are altered, the table is moved) have one drain.  It is named by the oldest of these versions.  Each version leads
    to the same oldest one, since stored contracts do not change.  So it makes no difference whether the versions are
    put before the drain, after it or while it is changed, nor by which of them a process works.

Steps
 1. ``begin``, when ingest starts and finds more partitions.  ``to`` becomes Kafka's ends, which ingest asks for after
    the number of partitions.  Ingest does so again at each start, since more records may have come.
 2. ``note_new``, when ingest meets the first record that belongs to a partition by the topic's number only: the
    partition ends there.
 3. ``close``, by ``alter``, from the very version of the drain up to which it has found everything merged.  Then
    ``alter`` ends the logs, looks again, and puts the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from lancewal_core.errors import ContractMismatch, ObjectCorrupt, PartitionCountChanged, counted
from lancewal_core.names import paths
from lancewal_core.names.ids import Position
from lancewal_core.process.clock import Clock
from lancewal_core.store.json_model import StoredVersion, Version1, Word
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import Declined, Family, Version, newest_version, swap
from lancewal_core.table.contract import Contract, changed_terms, read_contract_version

_INT64_MAX = 2**63 - 1
_DEPENDS_ON = frozenset({"topic", "topic_id", "partitions"})
"""Terms of the contract that a drain belongs to: with another value of such a term there is another drain."""


class Drain(StoredVersion):
    """One version of the drain."""

    what = "drain"
    format: Version1 = 1
    contract_version: int = Field(ge=1)
    """Version of the contract whose partitions are drained: the oldest version with these partitions
    (``drained_since``)."""
    partitions: int = Field(ge=1)
    """Number of partitions of the topic."""
    to: tuple[Annotated[int, Field(ge=0, le=_INT64_MAX)], ...]
    """Position of each partition of the contract from which on nothing is taken."""
    new: tuple[int, ...] = ()
    """Partitions that end before a record which belongs there only by the topic's number of partitions."""
    closed: bool = False
    """The contract is being changed, or was."""
    write_id: Word
    """Differs in every version: tells a lost reply from a lost race."""


def takes_no_more(topic: str, partitions: int, of_contract: int) -> str:
    """Return why a table with ``table.partitioner: none`` takes up no partitions that were added to its topic."""
    return (
        f"topic {topic} has {counted(partitions, 'partition')}, the table's contract says {of_contract}. With "
        "table.partitioner none nobody knows which keys moved to the added ones, so such a table takes none. Take a new topic "
        "and a new table"
    )


def _family(contract: Contract) -> Family:
    return Family.made(contract.making, paths.drain_prefix, paths.drain_version, paths.parse_drain_version)


def read_drain(store: ObjectStore, contract: Contract) -> Drain | None:
    """Return the newest drain of the contract's partitions, or of later ones; None if its partitions were never
    drained."""
    return _of(store, contract, newest_version(store, _family(contract)))


def drained_since(store: ObjectStore, contract: Contract) -> int:
    """Return the oldest version of the contract since which topic and partitions are these (guarantee 4)."""
    since = contract
    while since.version > 1:
        before = read_contract_version(store, contract, since.version - 1)
        if changed_terms(before, since) & _DEPENDS_ON:
            break
        since = before
    return since.version


def begin(
    store: ObjectStore,
    clock: Clock,
    new_id: Callable[[], str],
    contract: Contract,
    partitions: int,
    ends: Sequence[Position],
) -> Drain:
    """Write Kafka's ``ends`` into the drain (step 1), and return the drain in force.  Raise ``PartitionCountChanged``
    if the contract is being changed, or was."""

    def decide(found: Version | None) -> Drain | None:
        before = _of(store, contract, found)
        if before is None:
            since = drained_since(store, contract)
            return Drain(contract_version=since, partitions=partitions, to=tuple(ends), write_id=new_id())
        check_open(contract, before)
        new = before.new if before.partitions == partitions else ()
        to = tuple(at if p in new else max(at, ends[p]) for p, at in enumerate(before.to))
        after = before.model_copy(update={"partitions": partitions, "to": to, "new": new})
        return None if after == before else after.model_copy(update={"write_id": new_id()})

    outcome = swap(store, _family(contract), clock, decide, Drain.encode)
    if isinstance(outcome, Declined):
        found = _of(store, contract, outcome.found)
        assert found is not None  # else one would have been written
        return found
    return outcome.value


def note_new(
    store: ObjectStore,
    clock: Clock,
    new_id: Callable[[], str],
    contract: Contract,
    drain: Drain,
    at: Mapping[int, Position],
) -> None:
    """Record where the old partitions end.  ``at`` has by partition the position of the first record that lies there only by
    the topic's new number of partitions (step 2)."""

    def decide(found: Version | None) -> Drain | None:
        before = _of(store, contract, found)
        if before is None or before.closed or before.partitions != drain.partitions or set(at) <= set(before.new):
            return None
        to = tuple(at.get(p, position) for p, position in enumerate(before.to))
        new = tuple(sorted({*before.new, *at}))
        return before.model_copy(update={"to": to, "new": new, "write_id": new_id()})

    swap(store, _family(contract), clock, decide, Drain.encode)


def close(
    store: ObjectStore,
    clock: Clock,
    new_id: Callable[[], str],
    contract: Contract,
    looked_at: Drain | None,
    ended: Drain,
) -> None:
    """Close the drain (step 3).  If there is no drain yet, ``ended`` is written as the closed one.

    Raise ``ContractMismatch`` if the newest drain is another than ``looked_at``.
    """

    def decide(found: Version | None) -> Drain | None:
        before = _of(store, contract, found)
        if before != looked_at:
            raise ContractMismatch(
                "ingest was started meanwhile and takes more of the old partitions. Nothing was changed: run the command "
                "again"
            )
        if before is not None and before.closed:
            return None
        return (before or ended).model_copy(update={"closed": True, "write_id": new_id()})

    swap(store, _family(contract), clock, decide, Drain.encode)


def check_open(contract: Contract, drain: Drain) -> None:
    """Raise ``PartitionCountChanged`` unless the contract's partitions may still be drained.  ``drain`` is from
    ``read_drain``."""
    if drain.closed or drain.contract_version > contract.version:
        raise PartitionCountChanged(
            f"topic {contract.topic}: the contract that says {contract.partitions} partitions was altered, or is "
            "about to be. Start this process again. If it ends here once more, `lancewal table alter --partitions "
            f"{drain.partitions}` was interrupted: run that command again",
            topic=contract.topic,
        )


def _of(store: ObjectStore, contract: Contract, found: Version | None) -> Drain | None:
    if found is None:
        return None
    where = paths.drain_version(found.version, contract.making)
    drain = Drain.decode(found.data, where)
    if drain.contract_version > contract.version:
        return drain
    if drain.contract_version < contract.version and drain.contract_version != drained_since(store, contract):
        return None
    numbers = range(contract.partitions)
    if len(drain.to) != len(numbers) or any(partition not in numbers for partition in drain.new):
        raise ObjectCorrupt(f"{where} is corrupt: it is of other partitions than the contract's", object=where)
    return drain
