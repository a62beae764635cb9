"""Random histories of several tables with cuts among them: each cut stays the fold up to its positions, whatever happens to
the tables.  And no transaction is cut in two where the source of positions knows transactions."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import lance

from lancewal_core.catalog.cut import Cut
from lancewal_core.names.ids import Position
from lancewal_core.table.contract import Contract
from lancewal_flusher.cuts.positions import PositionSource
from lancewal_reader.cuts import open_cut
from lancewal_reader.point.receipt import Receipt
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
        self.kept[name] = cut, {table: copy.deepcopy(self.lake.of[table].oracle) for table in tables}
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


class Transactions:
    """A fake of a database that writes a row of an order and one of its item in each transaction, to two topics.  Several
    transactions are open at once; they are written and end in any order."""

    def __init__(self, lake: Lake, rng: random.Random) -> None:
        self._lake, self._rng = lake, rng
        self._begun = 0
        self._halves: list[tuple[int, str]] = []
        """Transaction and table of each row that is still to be written."""
        self._written: dict[int, dict[str, tuple[int, int]]] = {}
        """Partition and offset of the rows of each transaction, by table."""

    def begin(self) -> None:
        self._halves += [(self._begun, name) for name in self._lake.of]
        self._written[self._begun] = {}
        self._begun += 1

    def write_one(self) -> None:
        if not self._halves:
            return
        number, name = self._halves.pop(self._rng.randrange(len(self._halves)))
        table = self._lake.of[name]
        before = [len(table.messages(p)) for p in range(2)]
        table.upsert(f"r{self._rng.randrange(9)}", number, a=number)
        (partition,) = [p for p in range(2) if len(table.messages(p)) > before[p]]
        self._written[number][name] = partition, before[partition]

    def leave_one_open(self) -> None:
        """Write until a transaction has one of its rows."""
        self.begin()
        while all(len(of) != 1 for of in self._written.values()):
            self.write_one()

    def complete(self, contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        """The highest positions below which no transaction has a row without the other one."""
        found = {topic: dict(of) for topic, of in self._lake.ends(contracts).items()}
        while halves := [of for of in self._written.values() if self._whole(found, of) is None]:
            for of in halves:
                for name, (partition, offset) in of.items():
                    found[name][partition] = Position(min(found[name][partition], offset))
        return found

    def whole(self, cut: Cut) -> set[int]:
        """Transactions of which the cut must have both rows."""
        at = {
            name: {region.partition: n for region, n in Receipt.parse(of.receipt).positions.items()}
            for name, of in cut.tables.items()
        }
        return {number for number, of in self._written.items() if self._whole(at, of)}

    def _whole(self, at: Mapping[str, Mapping[int, int]], of: Mapping[str, tuple[int, int]]) -> bool | None:
        """Whether both rows lie below the positions, or neither does; None: one of them."""
        below = [name in of and of[name][1] < at[name][of[name][0]] for name in self._lake.of]
        return None if any(below) and not all(below) else all(below)


def test_no_transaction_is_cut_in_two(tmp_path: Path, seed: int) -> None:
    lake, rng = Lake(tmp_path, seed=seed), random.Random(f"{seed}/transactions")
    written = Transactions(lake, rng)
    cuts: list[tuple[Cut, set[int]]] = []
    for number in range(20):
        for _ in range(rng.randrange(4)):
            written.begin()
        for _ in range(rng.randrange(8)):
            written.write_one()
        if number % 3 == 2:
            written.leave_one_open()
        for table in lake.of.values():
            table.ingest()
        if rng.random() < 0.3:
            rng.choice(list(lake.of.values())).merge_all()
        if number % 3 == 2:
            source = PositionSource(written.complete, "transactions")
            cut = make_cut(lake.catalog, lake.members(), CutWanted(f"cut-{number}"), source, lake.tasks)
            cuts.append((cut, written.whole(cut)))
            assert any(table.oracle.keys() != lake.read(cut, name).keys() for name, table in lake.of.items())
    for table in lake.of.values():
        table.merge_all()
    assert max(len(whole) for _, whole in cuts) > 0
    for cut, whole in cuts:
        assert cut.holds == "transactions"
        for name in cut.tables:
            assert {id for _, id in lake.read(cut, name)} == whole == written.whole(cut), (cut.name, name)
    lake.close()
