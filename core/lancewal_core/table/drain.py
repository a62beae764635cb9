"""Draining: the positions up to which ingest consumes the contract's partitions while the topic has more partitions.

Producers that know the *new number* of partitions, which is the topic's, send keys to other partitions.  Nothing
orders a key's records in two partitions.  So first the records that lie by the *old number*, which is the contract's,
become durable and are merged.  Then ``lancewal table alter`` changes the contract.  Ingest and ``alter`` must agree
where the old number ends, even if more is produced, or a process was frozen and goes on.  So these positions are
stored, as versioned objects (``paths.drain_version``).

Guarantees
 1. Under the old contract nothing becomes durable after ``to`` of any version that a process has read, except entries
    without rows over records that Kafka has lost.
 2. Once the drain is closed for a contract, no later version of the drain is written, and no later claim makes a
    record durable.  A process that claims a region reads the drain after the claim, before it writes
    (``check_open``).  ``alter`` ends the logs of processes that claimed earlier.  What ``alter`` finds merged after
    that stays true, even if Kafka loses records, or a process was frozen and goes on.
 3. A partition in ``new`` has at ``to`` a record that belongs there by the new number and not by the old one.  No
    process that works by the old contract passes this record.
 4. A drain belongs to a topic and the contract's number of partitions.  Contract versions that differ only in other
    terms (policies are altered, the table is moved) share one drain, which names the oldest of these versions.  All
    of them lead to the same oldest one, since stored contracts do not change.  So they may be put before, after or
    during the drain, and a process may work by any of them.

Steps
 1. Ingest calls ``begin`` at each start at which the topic has more partitions.  ``to`` becomes Kafka's ends, which
    ingest asks for after the number of partitions.  A later start moves the ends on, since more records may have come.
 2. Ingest calls ``note_new`` when it finds the first record that belongs to a partition by the new number only.  The
    partition ends before this record.
 3. ``alter`` calls ``close`` with the drain up to which it has found everything merged.  Then ``alter`` ends the logs,
    checks again, and puts the contract.
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
"""Terms of the contract that identify a drain.  A contract version that changes one of them has another drain."""


class Drain(StoredVersion):
    """One version of the drain."""

    what = "drain"
    format: Version1 = 1
    contract_version: int = Field(ge=1)
    """Oldest contract version with the topic and partitions that are drained (``drained_since``)."""
    partitions: int = Field(ge=1)
    """Number of partitions of the topic, which is above the contract's."""
    to: tuple[Annotated[int, Field(ge=0, le=_INT64_MAX)], ...]
    """For each partition of the contract, the position up to which ingest consumes it: the first offset not
    consumed."""
    new: tuple[int, ...] = ()
    """Partitions whose ``to`` is the offset of a record that belongs there only by the topic's number of partitions."""
    closed: bool = False
    """Whether ``table alter`` changes the contract's number of partitions now, or has changed it."""
    write_id: Word
    """Random id, another one in every version.  It shows whether a put with a lost reply was this process's own."""


def takes_no_more(topic: str, partitions: int, of_contract: int) -> str:
    """Return the message that a table with ``table.partitioner: none`` cannot consume partitions added to its topic.

    ``partitions``: the topic's number.  ``of_contract``: the contract's."""
    return (
        f"topic {topic!r} has {counted(partitions, 'partition')}, the table's contract says {of_contract}. With "
        "`table.partitioner: none` nobody knows which keys moved to the added partitions, so the table cannot consume "
        "them. Use a new topic and a new table"
    )


def _family(contract: Contract) -> Family:
    return Family.made(contract.making, paths.drain_prefix, paths.drain_version, paths.parse_drain_version)


def read_drain(store: ObjectStore, contract: Contract) -> Drain | None:
    """Return the newest drain if it is of the contract's partitions, or of a later contract version.

    Return None if there is no drain, or if the newest one is of earlier partitions."""
    return _of(store, contract, newest_version(store, _family(contract)))


def drained_since(store: ObjectStore, contract: Contract) -> int:
    """Return the oldest contract version since which topic and number of partitions are those of ``contract``
    (guarantee 4)."""
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
    """Write Kafka's ``ends`` into the drain (step 1), and return the newest drain.  Ends of partitions in ``new`` stay,
    if the topic's number of partitions is the same.

    ``partitions``: the topic's number.  ``ends``: the end of each partition of the contract.  ``new_id``: makes write
    ids.  Raise ``PartitionCountChanged`` if the drain is closed, or belongs to a later contract version."""

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
    """Record where the old partitions end (step 2).  Write nothing if the drain is closed, or of another number of
    partitions than ``drain``.

    ``at``: for some partitions, the offset of the first record that belongs there only by the topic's number of
    partitions."""

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
    """Close the drain (step 3).  If there is no drain yet, write ``ended`` as a closed one.

    ``looked_at``: the result of ``read_drain`` by which the caller has found everything merged.  Raise
    ``ContractMismatch`` if the newest drain is another one.
    """

    def decide(found: Version | None) -> Drain | None:
        before = _of(store, contract, found)
        if before != looked_at:
            raise ContractMismatch(
                "ingest has started since this command began, and consumes more of the old partitions. Nothing was "
                "changed: run the command again"
            )
        if before is not None and before.closed:
            return None
        return (before or ended).model_copy(update={"closed": True, "write_id": new_id()})

    swap(store, _family(contract), clock, decide, Drain.encode)


def check_open(contract: Contract, drain: Drain) -> None:
    """Raise ``PartitionCountChanged`` if ``drain`` is closed, or belongs to a later contract version.

    ``drain`` is the result of ``read_drain``."""
    if drain.closed or drain.contract_version > contract.version:
        raise PartitionCountChanged(
            f"topic {contract.topic!r}: the number of partitions in the contract, {contract.partitions}, was altered "
            "or is about to be. Start this process again. If it ends with this error once more, `lancewal table alter "
            f"--partitions {drain.partitions}` was interrupted: run that command again",
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
        raise ObjectCorrupt(
            f"{where} is corrupt: it has other partitions than contract version {drain.contract_version}", object=where
        )
    return drain
