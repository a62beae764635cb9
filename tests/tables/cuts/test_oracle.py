"""Random histories of several tables with cuts among them: each cut stays the fold up to its positions, whatever happens to
the tables.  And no transaction is cut in two where the source of positions knows transactions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import lance

from lancewal_core.catalog.cut import Cut
from lancewal_core.names.ids import Position
from lancewal_core.table.contract import Contract
from lancewal_flusher.cuts.positions import PositionSource
from lancewal_reader.cuts import open_cut
from lancewal_reader.table import open_table
from lancewal_tables.cuts.drop import drop_cut
from lancewal_tables.cuts.make import CutWanted, make_cut
from tests.support.pipeline import Key, Pipeline, Row, by_key
from tests.tables.cuts.lake import Lake

STEPS = 30
NAMES = ("shop.orders", "shop.items", "crm.people")
Expected = dict[str, dict[Key, Row]]


class History:
    """A lake to which random things happen."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.lake = Lake(folder, NAMES, seed)
        self.rng = random.Random(f"{seed}/history")
        self.kept: dict[str, tuple[Cut, Expected]] = {}
        self.made = self.columns = 0

    def table(self) -> Pipeline:
        return self.lake.of[self.rng.choice(NAMES)]

    def produce(self) -> None:
        table = self.table()
        table.produce(self.rng.randint(5, 30))
        table.ingest()

    def merge(self) -> None:
        self.table().merge_all()

    def compact(self) -> None:
        """As a user does, with plain Lance."""
        lance.dataset(self.table().uri).optimize.compact_files()

    def collect(self) -> None:
        """What is merged is trimmed, and versions expire."""
        table = self.table()
        for _ in range(2):
            table.clock.ahead_s += 10 * 24 * 3600
            table.collect()

    def change_columns(self) -> None:
        table = self.table()
        self.columns += 1
        table.change_columns(added={f"c{self.columns}": "int64"})
        table.replace_worker()

    def make(self) -> None:
        self.made += 1
        name = f"cut-{self.made}"
        tables = self.rng.sample(NAMES, self.rng.randint(1, len(NAMES)))
        for table in tables:
            self.lake.of[table].ingest()
        cut = self.lake.make(name, *tables)
        self.kept[name] = cut, {table: dict(self.lake.of[table].oracle) for table in tables}
        for table in tables:
            assert self.rows(name)[table] == self.kept[name][1][table], "all that was acknowledged is in it"

    def drop(self) -> None:
        if len(self.kept) > 1:
            name = self.rng.choice(list(self.kept))
            cut, _ = self.kept.pop(name)
            drop_cut(self.lake.catalog, cut, {n: self.lake.of[n].table for n in cut.tables}, self.lake.tasks)

    def rows(self, name: str) -> Expected:
        return {n: by_key(table.to_arrow()) for n, table in open_cut(self.lake.catalog, name, open_table).items()}

    def check(self) -> None:
        assert list(self.lake.catalog.cuts()) == sorted(self.kept)
        for name, (cut, expected) in self.kept.items():
            assert self.rows(name) == expected, name
            for table, of in cut.tables.items():
                shown = lance.dataset(of.uri).checkout_version((of.snapshot, None)).to_table()
                assert by_key(shown) == expected[table], f"{name} of {table}, by plain Lance"


def test_cuts_stay_what_they_are(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    acts = [history.produce, history.merge, history.compact, history.collect, history.make]
    weights = [8, 4, 2, 2, 4]
    for act in (history.produce, history.make, history.change_columns, history.produce, history.make):
        act()
    for _ in range(STEPS):
        history.rng.choices([*acts, history.drop], [*weights, 1])[0]()
    history.check()
    history.lake.close()


def _last_complete(
    positions: Mapping[str, Mapping[int, Position]], _: Sequence[Contract]
) -> Mapping[str, Mapping[int, Position]]:
    return positions


def test_no_transaction_is_cut_in_two(tmp_path: Path, seed: int) -> None:
    """A fake of a database that writes a row of an order and one of its item in each transaction, to two topics."""
    lake, rng = Lake(tmp_path, seed=seed), random.Random(f"{seed}/transactions")
    orders, items = (lake.of[name] for name in ("shop.orders", "shop.items"))
    complete: Mapping[str, Mapping[int, Position]] = lake.ends([table.contract for table in lake.of.values()])
    cuts: list[tuple[Cut, int]] = []
    for number in range(12):
        halves = [orders, items] if rng.random() < 0.5 else [items, orders]
        halves[0].upsert(f"r{number % 5}", number, a=number)
        halves[0].ingest()
        if number % 4 == 3:  # half of a transaction is durable
            source = PositionSource(partial(_last_complete, complete), "transactions")
            cut = make_cut(lake.catalog, lake.members(), CutWanted(f"cut-{number}"), source, lake.tasks)
            cuts.append((cut, number))
        halves[1].upsert(f"r{(number + 1) % 5}", number, a=-number)
        halves[1].ingest()
        complete = lake.ends([table.contract for table in lake.of.values()])
    for table in lake.of.values():
        table.merge_all()
    assert len(cuts) == 3
    for cut, number in cuts:
        assert cut.holds == "transactions"
        for name in cut.tables:
            assert sorted(id for _, id in lake.read(cut, name)) == list(range(number)), (cut.name, name)
    lake.close()
