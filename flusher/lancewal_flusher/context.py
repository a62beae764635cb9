"""Context of the flusher's protocols: an open table, and what merging needs in addition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lancewal_core.errors import ContractChanged, ContractMismatch
from lancewal_core.keys.conflicts import Conflicts, read_conflicts
from lancewal_core.keys.index import KeyIndex
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.contract import (
    COLUMN_TERMS,
    GROUP_TERMS,
    NAME_TERMS,
    POLICIES,
    VALUE_TERMS,
    changed_terms,
    newer_contract,
)
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.tasks.runner import Runner

T = TypeVar("T")

_CONFLICTS_KEPT_BYTES = 256 << 20
"""Largest size of keys in conflict that a process keeps in memory.  A million short keys take 167 MiB."""


@dataclass(frozen=True, slots=True)
class FlusherContext(OpenedTable):
    keys: KeyIndex
    runner: Runner
    new_id: Callable[[], str]
    """Function that returns a new random text of at least 8 hex digits."""
    files_without_origin: set[str] = field(default_factory=set)
    """Names of data files for which no commit records the regions of the rows (``commit.row_origins``).  No later
    commit records them, so each file is searched for only once."""
    finished: set[tuple[TableVersion, str | None]] = field(default_factory=set)
    """Version and uuid of the newest merge that is known to be finished; at most one (``commit.send.is_finished``)."""
    key_parts_begun: set[str] = field(default_factory=set)
    """Keys of objects that upkeep of the key index writes now, and that no catalog may name yet.  Garbage collection,
    which runs at the same time, keeps them."""
    events: FlusherEvents = field(default_factory=FlusherEvents)
    conflicts_kept: list[tuple[ConflictsRef, Conflicts]] = field(default_factory=list)
    """The keys in conflict that ``conflicts_of`` read last, with the object that has them; at most one entry."""

    def conflicts_of(self, ref: ConflictsRef | None) -> Conflicts:
        """Return the keys in conflict in the object ``ref``, as ``read_conflicts`` does.

        The last object is cached, because reading a million keys takes seconds.
        """
        for kept, content in self.conflicts_kept:
            if kept == ref and content.schema == self.contract.rows:
                return content
        content = read_conflicts(self.store, ref, self.contract)
        if ref is not None and content.waiting.nbytes + content.owners.nbytes <= _CONFLICTS_KEPT_BYTES:
            self.conflicts_kept[:] = [(ref, content)]
        return content


def check_contract(context: FlusherContext) -> None:
    """Raise ``ContractMismatch`` if a newer contract version changes more than columns, policies and the consumer
    group.

    A process with the old contract would not know regions that only the newer version has, and what they need.  Keys
    that come through other regions since then would seem to be in conflict.
    """
    with_newer_contract(context)


def with_newer_contract(context: FlusherContext) -> FlusherContext | None:
    """Return a context with the newest contract; None if this context has the newest contract already.

    Raises ``ContractMismatch`` if more than columns, policies and the consumer group has changed.
    """
    newer = newer_contract(context.store, context.contract)
    if newer is None:
        return None
    ours = context.contract
    if not changed_terms(ours, newer) <= POLICIES | GROUP_TERMS | NAME_TERMS | COLUMN_TERMS | VALUE_TERMS:
        key = paths.contract_version(newer.version, ours.making)
        raise ContractMismatch(
            f"the table's contract has changed since this flusher started with version {ours.version}: "
            f"{key} exists. Start the flusher again",
            object=key,
        )
    context.contracts.know(newer)
    return replace(context, contract=newer)


def by_newest_contract(context: FlusherContext, act: Callable[[FlusherContext], T]) -> T:
    """Return the result of ``act``.  If ``act`` raises because rows or a table version need a newer contract, call
    ``act`` again with that contract.  Without a newer contract the error is raised.
    """
    while True:
        try:
            return act(context)
        except (ContractChanged, ContractMismatch):
            newer = with_newer_contract(context)
            if newer is None:
                raise
            context = newer
