"""What the flusher's protocols work on: an open table, and what merging needs besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lancewal_core import paths
from lancewal_core.errors import ContractMismatch
from lancewal_core.keys.index import KeyIndex
from lancewal_core.region.opened_table import OpenedTable
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.tasks.runner import Runner


@dataclass(frozen=True, slots=True)
class FlusherContext(OpenedTable):
    keys: KeyIndex
    runner: Runner
    new_id: Callable[[], str]
    """A fresh random text of at least 8 hex digits."""
    files_without_origin: set[str] = field(default_factory=set)
    """Data files of which no commit says through which regions their rows came (``commit.row_origins``): that stays so."""
    events: FlusherEvents = field(default_factory=FlusherEvents)


def check_contract(context: FlusherContext) -> None:
    """``ContractMismatch`` if the contract is not the newest: regions that only a newer one knows would seem to need nothing,
    and keys that may come through other regions since would seem to conflict."""
    newer = paths.contract_version(context.contract.version + 1)
    if context.store.get(newer) is not None:
        raise ContractMismatch(
            f"the table's contract has changed since this flusher started with version {context.contract.version}: "
            f"{newer} exists. Start the flusher again",
            object=newer,
        )
