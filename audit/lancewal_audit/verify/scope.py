"""Scope of one run: the receipt, the regions with their cuts, and the facts that limit what can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from lancewal_audit.verify.records.eras import Eras
from lancewal_core.errors import VersionGone
from lancewal_core.keys.conflicts import Conflicts, read_conflicts
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region, TableVersion
from lancewal_core.region.loss_record import LossRecord, read_losses, replaced_below
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.contract import Contract, former_columns
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.load_record import read_loads
from lancewal_core.table.watermarks import InForce, decode_merge_record, kind_of
from lancewal_reader.point.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Scope:
    """The state of the table that is verified, and the regions whose records are read."""

    contract: Contract
    """The newest contract version whose columns the read has.  All records of the receipt were decoded by it or an
    earlier version."""
    eras: Eras
    receipt: Receipt
    pinned: LancePinnedTable
    """The table version of the receipt."""
    in_force: InForce
    """Watermarks of the table version ``pinned``."""
    aside: Conflicts
    """Keys in conflict at the table version ``pinned``, and their records that wait for a person's decision."""
    cut: Mapping[Region, Position]
    """The receipt's positions of the regions whose records are read."""
    losses: Mapping[Region, tuple[LossRecord, ...]]
    """Accepted losses of offsets.  Losses of deletes alone are left out: the other records at their positions are in the
    table."""
    replaced: Mapping[Region, Position]
    """Position below which Kafka may have other records than ingest read, since the topic lost its tail; 0 if it did
    not."""
    dropped: Mapping[Region, Position]
    """Position up to which a person has dropped merged rows, after a restore.  Earlier records say nothing of the rows."""
    empty_before: bool
    """Whether the table is known to have had no rows before the first record."""
    now_ms: int
    """A time after the read, in ms since 1970.  A row that has not expired at this time had not expired at the read."""

    def merged(self, region: Region) -> Position:
        """Return the position up to which the table version ``pinned`` contains the region's records."""
        return self.in_force.position(region) or Position(0)

    @property
    def live_rows(self) -> int:
        return sum(fragment.live_rows for fragment in self.pinned.fragments())


def find_scope(
    opened: OpenedTable,
    receipt: Receipt,
    pinned: LancePinnedTable,
    in_force: InForce,
    partitions: frozenset[int] | None,
    shown: pa.Schema,
) -> Scope:
    """Return the scope of a run.  ``partitions``: verify only keys that belong to these partitions; None: all keys.
    ``shown``: the schema of the read.

    If the number of partitions was changed, a key's records may lie in any region, so all regions are read.
    """
    store, now_ms = opened.store, opened.clock.now_ms()
    contract = _shown(opened, shown)
    eras = Eras(opened.contracts.up_to(opened.contract))
    wanted = None if partitions is None or eras.altered else partitions
    cut = {
        region: receipt.positions[region]
        for region in contract.regions
        if region in receipt.positions and (wanted is None or region.partition in wanted)
    }
    accepted = {region: read_losses(store, region, contract.making) for region in cut}
    losses = {region: tuple(loss for loss in accepted[region] if loss.kind == "offsets") for region in cut}
    replaced = {region: replaced_below(accepted[region]) for region in cut}
    recorded = opened.watermarks.recorded_versions()
    dropped = _dropped(opened, [version for version in recorded if version <= receipt.version])
    empty_before = _empty_before(opened, eras, min(recorded, default=None))
    aside = read_conflicts(store, in_force.conflicts, contract)
    return Scope(contract, eras, receipt, pinned, in_force, aside, cut, losses, replaced, dropped, empty_before, now_ms)


def _shown(opened: OpenedTable, shown: pa.Schema) -> Contract:
    """Return the newest version of the contract whose columns are all in the schema ``shown``."""
    newest = opened.contract
    has = {(field.name, field.type) for field in shown}
    versions: Iterator[Contract] = chain([newest], former_columns(opened.store, newest))
    return next((one for one in versions if has.issuperset((f.name, f.type) for f in one.rows.table)), newest)


def _dropped(opened: OpenedTable, recorded: Sequence[TableVersion]) -> dict[Region, Position]:
    """Return the highest position of each region in the decisions ``keep`` among these merge records."""
    keys = [paths.merge_record(version, opened.contract.making) for version in recorded]
    dropped: dict[Region, Position] = {}
    for key, data in zip(keys, opened.tasks.map(opened.store.get, keys), strict=True):
        if data is not None and kind_of(data, key) == "keep":
            for region, mark in decode_merge_record(data, key).regions.items():
                dropped[region] = max(mark.next, dropped.get(region, mark.next))
    return dropped


def _empty_before(opened: OpenedTable, eras: Eras, first: TableVersion | None) -> bool:
    """Return whether the version at which the table became a lancewal table still exists, and has no rows.

    That version is ``first``, the first one with a merge record, if the record says that nothing was merged.  After a bulk
    load the answer is False.
    """
    if first is None or eras.rebound or read_loads(opened.store, opened.contract.making):
        return False
    key = paths.merge_record(first, opened.contract.making)
    data = opened.store.get(key)
    if data is None or decode_merge_record(data, key).version != 0:
        return False
    try:
        return not opened.table.at(first).fragments()
    except VersionGone:
        return False
