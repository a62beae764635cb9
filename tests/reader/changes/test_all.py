"""Every change between any two receipts of a random history, applied one after the other by a dict."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput, TooManyUnmerged
from lancewal_core.names.ids import Position, Region
from lancewal_core.store.address import place_of
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.changes.all import all_changes
from lancewal_reader.changes.net import net
from lancewal_reader.changes.pairs import Pairs
from lancewal_reader.changes.side import Side, between_sides
from lancewal_reader.point.at import point_of
from lancewal_reader.point.read_options import ReadOptions
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.reading.reads import Planned, Wanted
from lancewal_reader.table import Table, open_table
from tests.support.pipeline import EVERY_TYPE, SMALL, Key, Pipeline, Row, by_key


@dataclass(frozen=True, slots=True)
class Change:
    """A pair as Python values; ``before`` and ``after`` are None where there is no row."""

    key: Key
    before: Row | None
    after: Row | None
    sequence: int
    partition: int | None
    offset: int | None
    time_ms: int | None
    source: str


def changes_of(pairs: Pairs) -> Iterator[Change]:
    rows = zip(
        pairs.before.to_pylist(), pairs.after.to_pylist(), pairs.had, pairs.has, pairs.more.to_pylist(), strict=True
    )
    for before, after, had, has, more in rows:
        key = after if has else before
        time = more["_record_time"]
        yield Change(
            (key["region"], key["id"]),
            before if had else None,
            after if has else None,
            more["_sequence"],
            more["_partition"],
            more["_offset"],
            None if time is None else round(time.timestamp() * 1000),
            more["_source"],
        )


def feed(table: Table, start: str, end: str, columns: Sequence[str] | None = None) -> list[Change]:
    """The feed between two receipts."""
    reads = table._reads

    def planned(text: str) -> Planned:
        return reads.plan(Wanted(None, None, ReadOptions(at=point_of(text))))

    def opened(before: Side | None, after: Side) -> tuple[Side, Side]:
        assert before is not None
        return before, after

    before, after = between_sides(reads, planned(start), planned(end), opened)
    names = after.rows.table.names if columns is None else columns
    found = [change for pairs in all_changes(before, after, names) for change in changes_of(pairs)]
    _check_net(before, after, names, found)
    return found


def _check_net(before: Side, after: Side, names: Sequence[str], every: Sequence[Change]) -> None:
    """Compare the net changes with the first and the last row of each key in all changes."""
    ends: dict[Key, tuple[Row | None, Row | None]] = {}
    for change in every:
        first = ends[change.key][0] if change.key in ends else change.before
        ends[change.key] = first, change.after
    found: dict[Key, tuple[Row | None, Row | None]] = {}
    for pairs in net(before, after, names):
        for had, has, old, new in zip(
            pairs.had,
            pairs.has,
            pairs.before.select(names).to_pylist(),
            pairs.after.select(names).to_pylist(),
            strict=True,
        ):
            row = new if has else old
            found[row["region"], row["id"]] = old if had else None, new if has else None
    assert found == {key: rows for key, rows in ends.items() if rows[0] != rows[1]}


@dataclass(frozen=True, slots=True)
class State:
    receipt: str
    rows: dict[Key, Row]

    @property
    def positions(self) -> dict[Region, int]:
        return dict(Receipt.parse(self.receipt).positions)


def state_now(table: Table) -> State:
    rows = table.to_arrow()
    return State(str(receipt_of(rows.schema)), by_key(rows))


def applied(start: dict[Key, Row], changes: Sequence[Change]) -> dict[Key, Row]:
    """The rows after the changes; each must fit to the rows before it, and have a higher sequence than the key's last."""
    rows, last = dict(start), dict[Key, int]()
    for change in changes:
        assert rows.get(change.key) == change.before, change
        assert change.sequence > last.get(change.key, 0)
        last[change.key] = change.sequence
        if change.after is None:
            del rows[change.key]
        else:
            rows[change.key] = change.after
        if change.source != "record":
            assert change.before != change.after
    return rows


def check_records(pipeline: Pipeline, start: State, end: State, changes: Sequence[Change]) -> None:
    """Each record of the topic between the two is there once, in order, and did what it says."""
    rows = dict(start.rows)
    places: dict[int, list[int]] = {}
    for change in changes:
        if change.source != "record":
            rows.pop(change.key, None)
        else:
            assert change.partition is not None
            assert change.offset is not None
            places.setdefault(change.partition, []).append(change.offset)
            assert change.time_ms == pipeline.record_ms(change.partition, change.offset)
            pipeline.fold(rows, pipeline.messages(change.partition)[change.offset])
            assert rows.get(change.key) == change.after, change
        if change.after is not None:
            rows[change.key] = change.after
    for region, position in end.positions.items():
        wanted = range(start.positions.get(region, 0), position)
        found = places.get(region.partition, [])
        assert found == sorted(set(found))
        missing = set(wanted) - set(found)
        assert set(found) <= set(wanted)
        assert {pipeline.messages(region.partition)[at][2] for at in missing} <= {"delete"}


class History:
    """A table with a random history, and the states that reads have seen."""

    def __init__(self, folder: Path, seed: int, columns: pa.Schema = SMALL) -> None:
        self.pipeline = Pipeline(folder, columns, seed=seed, seal_rows=25, batch=20, grace_s=0)
        self.rng = random.Random(seed)
        self.table = open_table(self.pipeline.uri)
        self.states: list[State] = []
        self._made = 0

    def step(self) -> None:
        """Something happens."""
        self.rng.choice(
            [self._produce, self._produce, self._produce, self._merge, self._user, self._user, self._compact]
        )()
        self.states.append(state_now(self.table))

    def _produce(self) -> None:
        self.pipeline.produce(self.rng.randrange(50), ids=6)
        self.pipeline.ingest()

    def _merge(self) -> None:
        self.pipeline.ingest()
        if self.rng.random() < 0.5:
            self.pipeline.hand_over()
        self.pipeline.merge(MergeLimits(adopt_rows=self.rng.choice([1, 1000])))

    def _compact(self) -> None:
        lance.dataset(self.pipeline.uri).optimize.compact_files()

    def _user(self) -> None:
        dataset: Any = lance.dataset(self.pipeline.uri)
        self._made += 1
        match self.rng.randrange(3):
            case 0:
                self.pipeline.append_by_hand([{"region": "by hand", "id": self._made, "a": self._made}])
            case 1:
                dataset.delete(f"id = {self.rng.randrange(6)}")
            case _:
                dataset.update({"a": "1000 + id", "s": "'by hand'"}, where=f"id = {self.rng.randrange(6)}")

    def pairs(self, count: int) -> Iterator[tuple[State, State]]:
        for _ in range(count):
            one, other = sorted(self.rng.sample(range(len(self.states)), 2))
            yield self.states[one], self.states[other]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., History]]:
    found: list[History] = []

    def make(seed: int, columns: pa.Schema = SMALL) -> History:
        found.append(History(tmp_path / str(seed), seed, columns))
        return found[-1]

    yield make
    for history in found:
        history.pipeline.close()


@pytest.mark.in_turns("seed", each=5)
@pytest.mark.parametrize("seed", range(9))
def test_changes_lead_from_each_state_to_each_later_one(
    made: Callable[..., History], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Seeds other than 0 read in several portions, cut anywhere."""
    if seed:
        monkeypatch.setattr("lancewal_reader.unmerged.portions.PORTION_RECORDS", 3 * seed)
        monkeypatch.setattr("lancewal_reader.changes.records.PORTION_BYTES", 500)
    history = made(seed)
    before: list[tuple[State, State, list[Change]]] = []
    for _ in range(14):
        history.step()
    for start, end in history.pairs(6):
        found = feed(history.table, start.receipt, end.receipt)
        assert applied(start.rows, found) == end.rows
        check_records(history.pipeline, start, end, found)
        before.append((start, end, found))
    for index in range(4):
        one, two, three = (history.states[at] for at in sorted(history.rng.sample(range(len(history.states)), 3)))
        parts = [feed(history.table, a.receipt, b.receipt) for a, b in ((one, two), (two, three))]
        assert applied(one.rows, [*parts[0], *parts[1]]) == three.rows, index
    history.pipeline.merge_all()
    history.pipeline.collect()
    history._compact()
    again = open_table(history.pipeline.uri)
    for start, end, found in before:
        assert feed(again, start.receipt, end.receipt) == found


def test_changes_of_every_type(made: Callable[..., History]) -> None:
    history = made(3, EVERY_TYPE)
    for _ in range(12):
        history.step()
    for start, end in history.pairs(8):
        assert applied(start.rows, feed(history.table, start.receipt, end.receipt)) == end.rows


def test_a_feed_of_some_columns_has_these_alone(made: Callable[..., History]) -> None:
    """A record that changes none of them is there all the same."""
    history = made(5)
    for _ in range(8):
        history.step()
    start, end = history.states[0], history.states[-1]
    whole = feed(history.table, start.receipt, end.receipt)
    names = ["a", "id", "region"]
    some = feed(history.table, start.receipt, end.receipt, names)
    assert [(one.key, one.offset) for one in some if one.source == "record"] == [
        (one.key, one.offset) for one in whole if one.source == "record"
    ]
    narrow = {key: {name: row[name] for name in names} for key, row in start.rows.items()}
    assert applied(narrow, some) == {key: {name: row[name] for name in names} for key, row in end.rows.items()}


def test_a_long_range_goes_from_merge_to_merge(tmp_path: Path) -> None:
    """A reader that holds few keys reads a range of many, if each of its merges has few."""
    pipeline = Pipeline(tmp_path, SMALL, seed=2, partitions=2, batch=20)
    table = open_table(pipeline.uri, unmerged_keys_max=70)
    start = middle = state_now(table)
    for number in range(6):
        for id in range(30):
            pipeline.upsert(f"r{id % 5}", 30 * number + id, a=id)
            pipeline.patch(f"r{id % 5}", id, s=f"{number}")
        pipeline.delete("r0", 30 * number)
        pipeline.merge_all()
        if number == 2:
            middle = state_now(table)
    end = state_now(table)
    found = feed(table, start.receipt, end.receipt)
    assert applied(start.rows, found) == end.rows
    check_records(pipeline, start, end, found)
    assert feed(table, middle.receipt, end.receipt)[0].sequence > max(
        one.sequence for one in feed(table, start.receipt, middle.receipt)
    )
    for number in range(71):
        pipeline.upsert("r1", 1000 + number, a=1)
    pipeline.ingest()
    with pytest.raises(TooManyUnmerged, match="unmerged_keys_max"):
        feed(table, end.receipt, str(open_table(pipeline.uri).receipt()))
    pipeline.close()


def test_partitions_that_begin_above_zero_and_have_no_record(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, start=(5, 5, 5))
    table = open_table(pipeline.uri)
    start = state_now(table)
    for messages in pipeline._messages:
        messages += [(b"", b"", "upsert")] * 5
    pipeline.upsert("r1", 1, a=1)
    pipeline.ingest()
    end = state_now(table)
    assert sorted(Receipt.parse(end.receipt).positions.values()) == [5, 5, 6]
    found = feed(table, start.receipt, end.receipt)
    assert applied(start.rows, found) == end.rows
    assert [one.offset for one in found] == [5]
    with pytest.raises(InvalidInput, match="start is after its end"):
        feed(table, end.receipt, start.receipt)
    pipeline.close()


def test_any_positions_within_entries(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, SMALL, seed=8, partitions=2, seal_rows=30, batch=20)
    version = pipeline.table.newest().version
    for _ in range(3):
        pipeline.produce(50)
        pipeline.merge_all()
    pipeline.produce(40)
    pipeline.ingest()
    table, rng = open_table(pipeline.uri), pipeline.rng
    for _ in range(12):
        ends = {r: rng.randrange(len(pipeline.messages(r.partition)) + 1) for r in pipeline.contract.regions}
        begins = {r: rng.randrange(end + 1) for r, end in ends.items()}
        states = [
            State(str(Receipt(pipeline.contract.uuid, version, cut, place_of(pipeline.uri))), pipeline.fold_at(cut))
            for cut in ({r: Position(at) for r, at in some.items()} for some in (begins, ends))
        ]
        found = feed(table, states[0].receipt, states[1].receipt)
        assert applied(states[0].rows, found) == states[1].rows
        check_records(pipeline, states[0], states[1], found)
    pipeline.close()
