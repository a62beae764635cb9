"""A catalog in a folder with tables of several topics, which production ingest and flusher fill in this process."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.opened import open_directory
from lancewal_core.names.ids import Position
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.table.contract import Contract
from lancewal_flusher.cuts.positions import CutMember, PositionSource
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import open_table, reads_of
from lancewal_tables.cuts.make import CutWanted, make_cut
from tests.support.catalog_entries import entry
from tests.support.pipeline import Key, Pipeline, Row, by_key

TABLES = ("shop.orders", "shop.items")


class Lake:
    """See the module docstring.  Each table has a topic of its own."""

    def __init__(self, folder: Path, names: Sequence[str] = TABLES, seed: int = 0) -> None:
        self.root = folder / "lake"
        self.root.mkdir()
        self.rng = random.Random(seed)
        self.tasks = ThreadTasks()
        self.catalog: StoredCatalog = open_directory(str(self.root), tasks=self.tasks)
        self.of: dict[str, Pipeline] = {}
        for number, name in enumerate(names):
            self.add(
                name, Pipeline(folder / name, seed=seed + number, seal_rows=20, batch=15, topic=name, partitions=2)
            )

    def add(self, name: str, table: Pipeline) -> None:
        self.of[name] = table
        contract = table.contract
        made = entry(name, table.uri, table_uuid=contract.table_uuid, topic=contract.topic)
        assert self.catalog.swap_table(name, None, made)

    def produce(self, count: int) -> None:
        """Records to all topics, made durable in all tables."""
        for table in self.of.values():
            table.produce(count)
            table.ingest()

    def members(self, *names: str) -> list[CutMember]:
        contexts = {name: self.of[name].flusher() for name in names or self.of}
        return [CutMember(name, it, reads_of(it, self.of[name].uri, 0)) for name, it in contexts.items()]

    def ends(self, contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        """What Kafka would answer."""
        topics = {table.contract.topic: table for table in self.of.values()}
        return {
            it.topic: {p: Position(len(topics[it.topic].messages(p))) for p in range(it.partitions)} for it in contracts
        }

    def make(self, name: str, *tables: str, for_ms: int | None = None, wait_s: float = 1.0) -> Cut:
        wanted = CutWanted(name, for_ms, wait_s)
        return make_cut(self.catalog, self.members(*tables), wanted, PositionSource(self.ends), self.tasks)

    def expected(self, cut: Cut, name: str) -> dict[Key, Row]:
        """The fold of the records below the cut's positions, by the lines of the pipeline alone."""
        return self.of[name].fold_at(Receipt.parse(cut.tables[name].receipt).positions)

    def read(self, cut: Cut, name: str) -> dict[Key, Row]:
        of = cut.tables[name]
        return by_key(open_table(of.uri).to_arrow(at=f"snapshot:{of.snapshot}"))

    def check(self, *cuts: Cut) -> None:
        """Each table of each cut has exactly the rows that it was made with."""
        for cut in cuts:
            for name in cut.tables:
                assert self.read(cut, name) == self.expected(cut, name), (cut.name, name)

    def config(self) -> str:
        """A settings file that names the catalog."""
        path = self.root.parent / "lancewal.yaml"
        path.write_text(yaml.safe_dump({"catalog": {"kind": "directory", "root": str(self.root)}}))
        return str(path)

    def close(self) -> None:
        for table in self.of.values():
            table.close()
        self.tasks.close()
