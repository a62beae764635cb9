"""What the flusher's protocols work on: everything with an effect, put together once in ``main`` (or by a test)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lancewal_core import paths
from lancewal_core.errors import ContractMismatch
from lancewal_core.ids import Region
from lancewal_core.keys.index import KeyIndex
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.index import RegionIndex
from lancewal_core.region.indexes import RegionIndexes
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import Table
from lancewal_core.table.watermarks import Watermarks
from lancewal_flusher.tasks.runner import Runner


@dataclass(frozen=True, slots=True)
class FlusherContext:
    store: ObjectStore
    table: Table
    indexes: RegionIndexes
    watermarks: Watermarks
    keys: KeyIndex
    runner: Runner
    tasks: Tasks
    clock: Clock
    contract: Contract
    new_id: Callable[[], str]
    """A fresh random text of at least 8 hex digits."""
    untold: set[str] = field(default_factory=set)
    """Data files of which no commit says through which regions their rows came (``commit.row_origins``): that stays so."""

    def read_indexes(self) -> dict[Region, RegionIndex]:
        """The newest index of every region that has one; regions are enumerated from the contract."""
        found = self.tasks.map(lambda region: (region, self.indexes.read(region)), self.contract.regions)
        return {region: index for region, index in found if index is not None}


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
