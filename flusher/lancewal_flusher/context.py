"""Context of the flusher's protocols: an open table, and what merging needs in addition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lancewal_core.errors import ContractMismatch, TableReplaced
from lancewal_core.keys.conflicts import Conflicts, read_conflicts
from lancewal_core.keys.index import KeyIndex
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.store.versioned import FIRST_VERSION
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.contract import GROUP_TERMS, POLICIES, changed_terms, decode_contract
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.tasks.runner import Runner

_CONFLICTS_KEPT_BYTES = 256 << 20
"""Size of the keys in conflict that a process keeps: a million short ones take 167 MiB."""


@dataclass(frozen=True, slots=True)
class FlusherContext(OpenedTable):
    keys: KeyIndex
    runner: Runner
    new_id: Callable[[], str]
    """A fresh random text of at least 8 hex digits."""
    files_without_origin: set[str] = field(default_factory=set)
    """Data files of which no commit says through which regions their rows came (``commit.row_origins``): that stays so."""
    finished: set[tuple[TableVersion, str | None]] = field(default_factory=set)
    """The newest merge known to need no further work, by its version and uuid (``commit.send.is_finished``)."""
    key_parts_begun: set[str] = field(default_factory=set)
    """Objects that upkeep of the key index writes now, and that no catalog may name yet: garbage is collected beside it."""
    events: FlusherEvents = field(default_factory=FlusherEvents)
    conflicts_kept: list[tuple[ConflictsRef, Conflicts]] = field(default_factory=list)
    """The content of the object that was read last, at most one (``conflicts_of``)."""

    def conflicts_of(self, ref: ConflictsRef | None) -> Conflicts:
        """Return what ``read_conflicts`` gives, read once while the same object stays in force: reading takes seconds for a
        million keys."""
        for kept, content in self.conflicts_kept:
            if kept == ref:
                return content
        content = read_conflicts(self.store, ref, self.contract.rows)
        if ref is not None and content.waiting.nbytes + content.owners.nbytes <= _CONFLICTS_KEPT_BYTES:
            self.conflicts_kept[:] = [(ref, content)]
        return content


def check_making(context: FlusherContext) -> None:
    """Raise ``TableReplaced`` if the table was dropped: objects at its place may now be another table's.

    Anything listed before this check was listed while the table was there, since version 1 of its contract never
    comes back.
    """
    key = paths.contract_version(FIRST_VERSION, None)
    data = context.store.get(key)
    ours = context.contract.making
    if data is None and ours is None:
        return  # lost, by who keeps the versions above it
    if data is None or decode_contract(data, key).making != ours:
        raise TableReplaced(
            f"the table was dropped{'' if data is None else ', and another one was made at its place'}: {key} is not that "
            "of the table that this process works on. Start it again if it is to work on the new table",
            object=key,
        )


def check_contract(context: FlusherContext) -> None:
    """Raise ``ContractMismatch`` if the contract is not the newest.

    Regions that only a newer one knows would seem to need nothing, and keys that may come through other regions since
    would seem to conflict.  Changes are ignored that only concern records that are no rows, and who takes them."""
    ours = context.contract
    newer = ours.version + 1
    while (data := context.store.get(key := paths.contract_version(newer, ours.making))) is not None:
        if not changed_terms(ours, decode_contract(data, key)) <= POLICIES | GROUP_TERMS:
            raise ContractMismatch(
                f"the table's contract has changed since this flusher started with version {ours.version}: "
                f"{key} exists. Start the flusher again",
                object=key,
            )
        newer += 1
