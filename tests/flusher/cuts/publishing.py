"""Publishers of a moving cut of real tables in a folder."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import lance

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.errors import LancewalError
from lancewal_core.names import paths
from lancewal_core.names.ids import Position
from lancewal_core.settings.sections import MovingCutSettings
from lancewal_core.table.contract import Contract, encode_contract
from lancewal_core.table.watermarks import TABLE_UUID
from lancewal_flusher.cuts.moving import CutTurn, Moments, MovingCut
from lancewal_flusher.cuts.positions import CutMember, PositionSource
from lancewal_reader.cuts import open_cut
from lancewal_reader.table import open_table, reads_of
from tests.support.pipeline import Pipeline, by_key
from tests.support.scripted import ManualClock
from tests.tables.cuts.lake import Lake

EVERY_S = 10.0
NAMES = ("shop.orders", "shop.items", "shop.people")


class Publishing:
    """A publisher of the cut ``live`` of a lake, with a clock of its own that the test moves."""

    def __init__(
        self,
        lake: Lake,
        catalog: StoredCatalog | None = None,
        *,
        leave_out: bool = False,
        tables: tuple[str, ...] = ("shop.*",),
    ) -> None:
        self.lake, self.clock, self.opened = lake, ManualClock(), 0
        self.source_fails: LancewalError | None = None
        self.ids = iter(f"{random.Random().getrandbits(64):016x}" for _ in range(1_000))
        self.cut = MovingCut(
            catalog or lake.catalog,
            MovingCutSettings(name="live", tables=tables, every=EVERY_S, lagging="leave-out" if leave_out else "hold"),
            PositionSource(self.ends),
            self.open_table,
            lake.tasks,
            Moments(self.clock, lambda: next(self.ids), self.pause),
        )

    def ends(self, contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        for contract in contracts:
            if self.source_fails is not None and self.source_fails.where["topic"] == contract.topic:
                raise self.source_fails
        return self.lake.ends(contracts)

    def pause(self, seconds: float) -> bool:
        self.clock.sleep(seconds)
        return False

    def open_table(self, found: TableEntry, stack: ExitStack) -> CutMember:
        self.opened += 1
        table = self.lake.of[found.name]
        context = table.flusher()
        return CutMember(found.name, context, reads_of(context, table.uri, 0))

    def turn(self) -> CutTurn:
        """A turn, after an interval."""
        self.clock.sleep(EVERY_S)
        return self.cut.turn()


def cut_of(catalog: StoredCatalog) -> Cut:
    cut = catalog.cut("live")
    assert cut is not None
    return cut


def check(lake: Lake, catalog: StoredCatalog | None = None) -> Cut:
    """Each table of the cut has the rows of the records below its positions, by the oracle alone."""
    cut = cut_of(catalog or lake.catalog)
    for name, table in open_cut(catalog or lake.catalog, "live", open_table).items():
        assert by_key(table.to_arrow()) == lake.expected(cut, name), name
    return cut


def changed(before: Cut, after: Cut) -> list[str]:
    return [name for name in after.tables if before.tables.get(name) != after.tables[name]]


def late(lake: Lake, name: str = "shop.items") -> Pipeline:
    """Records of a table that its ingest does not take yet."""
    lake.of[name].produce(5)
    return lake.of[name]


def called_anew(table: Pipeline) -> None:
    """Give the table another uuid, before it has rows."""
    lance.dataset(table.uri).update_config({TABLE_UUID: "another-uuid"})
    table.contract = table.contract.model_copy(update={"table_uuid": "another-uuid"})
    key = paths.contract_version(1, table.contract.making)
    (Path(table.uri) / key).write_bytes(encode_contract(table.contract))
    table.replace_worker()
