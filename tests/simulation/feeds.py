"""A reader of change feeds in a world.  Each feed is held to its laws, and is asked for again later.

1. A feed, applied to the rows at its start, gives the rows at its end.  Those of ``commits`` are merged rows alone.
2. ``_sequence`` grows with each change of a key, from feed to feed too.
3. ``all`` and ``commits`` fold to ``net``.
4. Feeds of adjoining ranges fold to the feed of both.
5. The same ends give the same rows whenever they are asked for.

Each of these, or an error that says by name what is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, Literal

from lancewal_core.errors import (
    ContractMismatch,
    DuplicateKeys,
    InvalidInput,
    MergedPositionUnknown,
    ObjectMissing,
    OutsideHistoryWindow,
    RecordsGivenUp,
    RegionConflict,
    TableRestored,
    VersionGone,
)
from lancewal_reader.point.receipt import Receipt
from tests.simulation import oracle
from tests.simulation.checker import require
from tests.simulation.reading import Seen, SimTable
from tests.simulation.user import OF_A_USER
from tests.simulation.world import PASSING, Process, World

Mode = Literal["net", "commits", "all"]
MODES: tuple[Mode, ...] = ("net", "commits", "all")
Row = Mapping[str, Any]
Fold = dict[int, tuple[oracle.Values | None, oracle.Values | None]]
"""For each key its row before and after: None where there is none."""
_BEFORE = ("delete", "update_preimage")
_OF_ANOTHER_VERSION = ("_commit_version", "_commit_timestamp")


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed that was read."""

    where: str
    mode: Mode
    ends: tuple[str, str]
    rows: tuple[Row, ...]
    seen: tuple[dict[int, oracle.Values], dict[int, oracle.Values]] | None
    """Rows at both ends; None where nobody has seen them."""


class FeedReading:
    """What one process asks of change feeds."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.table = SimTable(world, process)

    def read(self, start: Seen, end: Seen, mode: Mode = "net") -> Feed | None:
        """One feed between two earlier reads, by laws 1 and 2; None where an error says what is gone."""
        found = self._read(str(start[0]), str(end[0]), mode, (start, end))
        if found is not None:
            self._world.feeds.append(found)
        return found

    def compare(self, start: Seen, end: Seen, mode: Mode) -> None:
        """Law 3; of ``net`` the laws of any feed."""
        one = self.read(start, end, mode)
        if mode == "net":
            return
        ends = start, end
        points = [f"version:{seen[0].version}" if mode == "commits" else str(seen[0]) for seen in ends]
        net = None if one is None else self._read(points[0], points[1], "net", None if mode == "commits" else ends)
        if one is not None and net is not None and self._comparable():
            folds = self.folded(one.rows, one.where), self.folded(net.rows, net.where)
            require(folds[0] == folds[1], f"{one.where}: it folds to", folds[0], "net is", folds[1])
            self._world.note(f"changes {mode} folded to net")

    def adjoin(self, start: Seen, middle: Seen, end: Seen, mode: Mode) -> None:
        """Law 4."""
        found = [self.read(*ends, mode) for ends in ((start, middle), (middle, end), (start, end))]
        first, second, both = found
        if first is None or second is None or both is None or not self._comparable():
            return
        parts = (*first.rows, *second.rows)
        folds = self.folded(parts, f"{both.where} in parts"), self.folded(both.rows, both.where)
        require(folds[0] == folds[1], f"{both.where}: its parts fold to", folds[0], "and it to", folds[1])
        self._world.note(f"changes {mode} of adjoining ranges")

    def again(self, before: Feed) -> None:
        """Law 5."""
        found = self._read(*before.ends, before.mode, None)
        if found is None:
            return
        one, other = ([_without_stand_in(row, before.mode) for row in feed.rows] for feed in (before, found))
        require(_ordered(one) == _ordered(other), f"{found.where}: asked again", other, "instead of", one)
        self._world.note(f"changes {before.mode} again")

    def folded(self, rows: Iterable[Row], where: str) -> Fold:
        """The first row before and the last row after each key's changes, which follow each other."""
        found: Fold = {}
        sequences: dict[int, int] = {}
        for row in rows:
            key, kind = row["k"], row["_change_type"]
            values = {name: value for name, value in row.items() if name != "k" and not name.startswith("_")}
            if self._world.by_hand.shows(key, values):
                continue
            if kind in _BEFORE:
                first, last = found.get(key, (values, values))
                require(last == values, f"{where}: before a {kind} of {key}", values, "is not", last)
                found[key] = first, None
            else:
                first, last = found.get(key, (None, None))
                require(last is None, f"{where}: {kind} of {key} over", last)
                found[key] = first, values
            passed = sequences.get(key)
            is_second = kind == "update_postimage"
            grows = passed is None or row["_sequence"] > passed or (is_second and row["_sequence"] == passed)
            require(grows, f"{where}: the sequence of {key}", row["_sequence"], "after", passed)
            sequences[key] = row["_sequence"]
        return {key: images for key, images in found.items() if images[0] != images[1]}

    def _comparable(self) -> bool:
        """Whether rows of two feeds have the same columns, and each key one row."""
        return self._world.columns is None and not self._world.by_hand.shared

    def _read(self, start: str, end: str, mode: Mode, seen: tuple[Seen, Seen] | None) -> Feed | None:
        world = self._world
        where = f"{self._process.name} changes {mode} from {start} to {end}"
        try:
            feed = self.table.changes(start, end, mode)
            rows = tuple(row for batch in feed.to_batches() for row in batch.to_pylist())
        except (
            *PASSING, VersionGone, OutsideHistoryWindow, MergedPositionUnknown, TableRestored, ObjectMissing,
            ContractMismatch, DuplicateKeys, InvalidInput, RegionConflict, RecordsGivenUp,
        ) as error:  # fmt: skip
            self._check(error, mode, where)
            world.note(f"changes {mode}: {type(error).__name__}")
            world.log(f"{where}: {type(error).__name__} {error}")
            return None
        world.note(f"changes {mode}{' of a table with other columns' if world.columns is not None else ''}")
        if seen is None:
            return Feed(where, mode, (start, end), rows, None)
        (first, before), (last, after) = seen
        if mode == "commits":
            require(feed.receipt.version == last.version, f"{where}: another end", feed.receipt)
            before, after = self._merged(first), self._merged(last)
        else:
            require(feed.receipt == last, f"{where}: another end", feed.receipt)
        if world.columns is not None:  # rows are of the columns of then
            if mode != "commits":
                _check_keys(rows, before, after, where)
        elif mode != "commits" or self._comparable():
            self._check_applied(rows, before, after, where, mode)
        return Feed(where, mode, (start, end), rows, (before, after))

    def _check(self, error: Exception, mode: Mode, where: str) -> None:
        """The error must be one that something in this world explains."""
        world = self._world
        refused = isinstance(error, InvalidInput | RegionConflict | RecordsGivenUp)
        require(mode == "all" or not refused, f"{where}: no record is asked for, but", error)
        lost = isinstance(error, ObjectMissing) and world.losses.named_by(error)
        require(lost or not isinstance(error, ObjectMissing), f"{where}: nothing is lost, but", error)
        twice = bool(world.by_hand.shared)
        require(twice or not isinstance(error, DuplicateKeys), f"{where}: no key is there twice, but", error)
        reused = world.columns is not None and OF_A_USER in str(error)  # Lance gave it the id of a dropped column
        if isinstance(error, ContractMismatch) and not reused:
            world.check_misfits(error)

    def _merged(self, receipt: Receipt) -> dict[int, oracle.Values]:
        """Rows of the merged table at a receipt's version."""
        world, version = self._world, receipt.version
        if world.columns is not None:
            return {}
        positions = world.merged_by(version)
        return world.rows_at({world.contract.regions[p]: n for p, n in positions.items()}, version)

    def _check_applied(
        self,
        rows: tuple[Row, ...],
        before: dict[int, oracle.Values],
        after: dict[int, oracle.Values],
        where: str,
        mode: Mode,
    ) -> None:
        found = dict(before)
        for key, (old, new) in self.folded(rows, where).items():
            require(found.get(key) == old, f"{where}: before the changes of {key}", old, "there was", found.get(key))
            if new is None:
                del found[key]
            else:
                found[key] = new
        require(found == after, f"{where}: rows", found, "instead of", after)
        if mode == "net":
            shown = [row["k"] for row in rows if row["_change_type"] != "update_postimage" and not self._theirs(row)]
            require(len(shown) == len(set(shown)), f"{where}: a key twice", sorted(shown))
            pairs = [two for two in pairwise(rows) if two[1]["_change_type"] == "update_postimage"]
            same = [old for old, new in pairs if _values(old) == _values(new)]
            require(not same, f"{where}: an update to the same row", same)

    def _theirs(self, row: Row) -> bool:
        return self._world.by_hand.shows(row["k"], _values(row))

    def some(self, rng: Random) -> None:
        """Look at some feed, in one of these ways."""
        world = self._world
        if world.feeds and rng.random() < 0.3:
            self.again(rng.choice(world.feeds))
            return
        mode = rng.choice(MODES)
        reads = [rng.choice(world.reads) for _ in range(3)]
        ordered = in_order(reads)
        if ordered is None:
            return
        match rng.choice(["read", "compare", "adjoin"]):
            case "compare":
                self.compare(ordered[0], ordered[2], mode)
            case "adjoin":
                self.adjoin(*ordered, mode)
            case _:
                self.read(ordered[0], ordered[2], mode)


def in_order(reads: Iterable[Seen]) -> tuple[Seen, Seen, Seen] | None:
    """Three reads so that each holds all that the one before it holds; None if they do not."""
    first, second, third = sorted(reads, key=lambda seen: (seen[0].version, sum(seen[0].positions.values())))
    for one, other in ((first, second), (second, third)):
        if any(other[0].positions.get(region, 0) < at for region, at in one[0].positions.items()):
            return None
    return first, second, third


def _check_keys(
    rows: Iterable[Row], before: Mapping[int, oracle.Values], after: Mapping[int, oracle.Values], where: str
) -> None:
    newest = {row["k"]: row["_change_type"] for row in rows}
    gone = {k for k, kind in newest.items() if kind == "delete"}
    require({*before, *newest} - gone == {*after}, f"{where}: keys", newest, before, after)


def _values(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "k" and not name.startswith("_")}


def _without_stand_in(row: Row, mode: Mode) -> Row:
    """The row without what another version that stands in may say otherwise."""
    return row if mode == "commits" else {name: row[name] for name in row if name not in _OF_ANOTHER_VERSION}


def _ordered(rows: Iterable[Row]) -> list[Row]:
    """Rows by key: feeds have no order between keys."""
    return sorted(rows, key=lambda row: (row["k"], row["_sequence"], row["_change_type"] == "update_postimage"))
