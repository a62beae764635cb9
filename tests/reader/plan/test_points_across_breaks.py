"""Points of before what breaks a table's history: each form of point with each break, as the page says.

The oracle folds the messages into dicts, one for each stretch between two breaks (``Life.rows_of``); what the merged table
had is read by plain Lance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancewal_core.errors import InvalidInput, OutsideHistoryWindow, VersionGone
from lancewal_core.names.ids import Position
from lancewal_core.settings.load import Settings
from lancewal_kafka.topic import TopicState
from lancewal_reader.point.at import At, AtPositions, AtRecordTime, AtVersion, Point
from lancewal_reader.table import open_table
from lancewal_tables.define.alter import add_partitions, rebind_topic
from lancewal_tables.load.files import find_files
from lancewal_tables.load.whole import LoadAsked, load
from lancewal_tables.snapshots.make import make_snapshot
from tests.reader.plan.test_points_in_time import at_ms
from tests.support.pipeline import FIRST_MS, SMALL, Key, Message, Pipeline, Row, by_key, moment
from tests.support.repairs import command

PAGE = Path(__file__).parents[3] / "docs/reference/consistency.md"
BATCH_MS = 1000
Rows = dict[Key, Row]


@dataclass(frozen=True)
class Stretch:
    """What lies between two breaks: rows that were there, and from where records count on top of them."""

    base: Rows
    first: Mapping[int, int]


@dataclass(frozen=True)
class Topic:
    """Records by partition, with their times, and the stretches of the table's life that read them."""

    messages: list[list[Message]]
    times: list[list[int]]
    stretches: list[Stretch]

    @property
    def ends(self) -> dict[int, int]:
        return {partition: len(sent) for partition, sent in enumerate(self.messages)}

    def before(self, ms: int) -> dict[int, int]:
        """By partition the first record that is not older."""
        return {
            p: next((offset for offset, time in enumerate(times) if time >= ms), len(times))
            for p, times in enumerate(self.times)
        }


@dataclass(frozen=True)
class Note:
    """What a strong read saw at a moment, and points of it."""

    rows: Rows
    merged: Rows
    points: Mapping[str, Point]


class Mixed(Exception):
    """The positions lie on both sides of a break."""


class Life:
    """A table with a history.  Records of one batch have one time, but those of partition 1 are ``skew`` batches older."""

    def __init__(self, folder: Path, *, skew: int = 0, attached: Sequence[Row] = ()) -> None:
        self.folder, self.skew, self.batch = folder, skew, 0
        self.notes: list[Note] = []
        self.topics: list[Topic] = []
        self.pipeline = Pipeline(
            folder, partitions=2, seed=4, seal_rows=12, batch=12, grace_s=0, attached=attached,
            record_ms=lambda partition, offset: self.topic.times[partition][offset],
        )  # fmt: skip
        self.begin()

    @property
    def topic(self) -> Topic:
        return self.topics[-1]

    def begin(self, rows: Rows | None = None, at: Mapping[int, int] | None = None) -> None:
        """A stretch begins, where not said otherwise with the rows and positions of now."""
        messages = self.pipeline._messages
        if not self.topics or not any(sent is known for sent in messages for known in self.topic.messages):
            self.topics.append(Topic(messages, [[] for _ in messages], []))
        known = self.topics[-1]
        times = [*known.times, *([] for _ in messages[len(known.times) :])]
        self.topics[-1] = Topic(messages, times, known.stretches)
        self.topic.stretches.append(Stretch(dict(rows or self.pipeline.oracle), at or self.topic.ends))

    def produce(self, count: int = 30) -> None:
        self.pipeline.produce(count)
        self.batch += 1
        for partition, times in enumerate(self.topic.times):
            batch = self.batch - (self.skew if partition == 1 else 0)
            times += [FIRST_MS + batch * BATCH_MS] * (len(self.topic.messages[partition]) - len(times))

    def go_on(self, rounds: int = 1) -> None:
        """Records come and are merged, with notes before, between and after."""
        for _ in range(rounds):
            self.produce()
            self.pipeline.ingest()
            self.note()
            self.pipeline.merge_all()
            self.note()
        self.produce()
        self.pipeline.ingest()
        self.note()

    def merged(self) -> Rows:
        return by_key(cast("Any", lance.dataset(self.pipeline.uri)).to_table())

    def note(self) -> None:
        table = open_table(self.pipeline.uri)
        name = f"n{len(self.notes)}"
        make_snapshot(self.pipeline.flusher(), table._reads, name)
        assert by_key(table.to_arrow()) == self.pipeline.oracle
        points: dict[str, Point] = {
            "receipt": table.receipt(),
            "version": At.version(self.pipeline.table.newest().version),
            "positions": At.positions(self.topic.ends),
            "timestamp": At.timestamp(at_ms(moment())),
            "record-time": At.record_time(at_ms(FIRST_MS + self.batch * BATCH_MS + 1)),
            "snapshot": At.snapshot(name),
        }
        self.notes.append(Note(dict(self.pipeline.oracle), self.merged(), points))

    # -- the oracle ----------------------------------------------------------------------------------------------

    def rows_of(self, cut: Mapping[int, int], topic: int = -1) -> Rows:
        """What the records below these positions make of the table; ``Mixed``."""
        read = self.topics[topic]
        chosen = max(i for i, s in enumerate(read.stretches) if all(cut[p] >= at for p, at in s.first.items()))
        if any(cut[p] > s.first.get(p, 0) for s in read.stretches[chosen + 1 :] for p in cut):
            raise Mixed
        stretch = read.stretches[chosen]
        found = dict(stretch.base)
        for partition, at in cut.items():
            for message in read.messages[partition][stretch.first.get(partition, 0) : at]:
                self.pipeline.fold(found, message)
        return found

    def rows_before(self, ms: int) -> Rows:
        """What the records before the first of a time make of the table; ``Mixed``."""
        for number, topic in enumerate(self.topics[:-1]):
            if topic.before(ms) != topic.ends:
                if any(any(later.before(ms).values()) for later in self.topics[number + 1 :]):
                    raise Mixed
                return self.rows_of(topic.before(ms), number)
        return self.rows_of(self.topic.before(ms))

    def expected(self, note: Note, form: str) -> Rows:
        match note.points[form]:
            case AtVersion():
                return note.merged
            case AtPositions() as at:
                return self.rows_of({**dict.fromkeys(self.topic.ends, 0), **dict(at.by_partition)})
            case AtRecordTime() as at:
                return self.rows_before(at.ms)
        return note.rows


# -- what breaks a history ---------------------------------------------------------------------------------------


class Brokers:
    """Of a topic that was made anew, or has got a partition."""

    def __init__(self, life: Life, topic_id: str, partitions: int) -> None:
        self._life, self._topic = life, TopicState("orders", topic_id, partitions, False)

    def describe(self, topic: str) -> TopicState:
        return self._topic

    def begins(self, topic: str, partitions: Collection[int]) -> Mapping[int, Position]:
        return dict.fromkeys(partitions, Position(0))

    def ends(self, topic: str, partitions: Collection[int], *, committed: bool = True) -> Mapping[int, Position]:
        return {partition: Position(self._life.topic.ends[partition]) for partition in partitions}


def restored(life: Life, choice: str) -> None:
    """The merged state of the second note comes back, while some records are not merged."""
    pipeline, back = life.pipeline, life.notes[1]
    pipeline.settle()
    merged = {region.partition: int(at) for region, at in pipeline.merged().items()}
    version = cast("AtVersion", back.points["version"]).number
    cast("Any", lance.dataset(pipeline.uri, version=version)).restore()
    command(pipeline, "restored", "--rows-since", choice)
    if choice == "drop":
        life.begin(back.merged, merged)
        pipeline.oracle = life.rows_of(life.topic.ends)


def made_anew(life: Life) -> None:
    pipeline = life.pipeline
    pipeline.merge_all()
    settings = Settings.model_validate({"table": {"uri": pipeline.uri}, "kafka": {"bootstrap_servers": "nobody:1"}})
    brokers: Any = Brokers(life, "topic-id-2", 2)
    rebind_topic(settings, "topic-id-2", brokers)
    pipeline.take_up_contract()
    life.begin()


def partition_added(life: Life) -> None:
    pipeline = life.pipeline
    pipeline.merge_all()
    opened = pipeline.flusher()
    add_partitions(opened, opened.new_id, 3, Brokers(life, "topic-id", 3))
    pipeline.take_up_contract()
    life.begin()


def loaded(life: Life) -> None:
    """Rows of keys that Kafka does not have, while some records are not merged."""
    pipeline, merged = life.pipeline, life.merged()
    at = {region.partition: int(position) for region, position in pipeline.merged().items()}
    rows: list[Row] = [{"region": "loaded", "id": id, "a": id, "s": "x"} for id in range(40)]
    pq.write_table(pa.Table.from_pylist(rows, SMALL), life.folder / "rows.parquet")
    load(pipeline.flusher(), find_files([str(life.folder / "rows.parquet")], {}), LoadAsked("rows"))
    new = {(row["region"], row["id"]): row for row in rows}
    life.begin({**merged, **new}, at)
    pipeline.oracle = {**pipeline.oracle, **new}


BREAKS: Mapping[str, Callable[[Life], None]] = {
    "restored, `drop`": lambda life: restored(life, "drop"),
    "restored, `replay`": lambda life: restored(life, "replay"),
    "topic made anew": made_anew,
    "partitions added": partition_added,
    "bulk load": loaded,
}


def said(life: Life, at: Point) -> Rows | Exception:
    try:
        return by_key(open_table(life.pipeline.uri).to_arrow(at=at))
    except (InvalidInput, OutsideHistoryWindow, VersionGone) as error:
        return error


def table_of_page() -> dict[tuple[str, str], str]:
    """By point and break what the page says."""
    text = PAGE.read_text().split("## Points from before a break")[1]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)]
    columns, rows = lines[0][1:], lines[2:]
    return {(row[0].strip("`:"), column): cell for row in rows for column, cell in zip(columns, row[1:], strict=True)}


def outcome(life: Life, note: Note, form: str) -> str:
    """What came of the read, in words of the page.  Rows are compared here."""
    found = said(life, note.points[form])
    try:
        expected = life.expected(note, form)
    except Mixed:
        assert isinstance(found, InvalidInput), (form, found)
        return "refused"
    if isinstance(found, Exception):
        return "refused" if isinstance(found, InvalidInput) else type(found).__name__
    assert found == expected, form
    return "rows of then" if expected == (note.merged if form == "version" else note.rows) else "other rows"


@pytest.mark.parametrize("break_", BREAKS)
def test_a_point_from_before_a_break_gives_what_the_page_says(tmp_path: Path, break_: str) -> None:
    life, page = Life(tmp_path), table_of_page()
    life.go_on(2)
    before = len(life.notes)
    BREAKS[break_](life)
    life.go_on(1)
    for number, note in enumerate(life.notes):
        for form in note.points:
            cell = page[form, break_] if number < before else "rows of then"
            assert (outcome(life, note, form) in cell.split(", "), number, form) == (True, number, form)
    life.pipeline.merge_all()
    life.pipeline.clock.ahead_s += life.pipeline.contract.history_window_s + 60
    life.pipeline.collect()
    life.pipeline.collect()
    for number, note in enumerate(life.notes):
        for form in note.points:
            cell = page[form, break_] if number < before else "rows of then"
            assert outcome(life, note, form) in (*cell.split(", "), "OutsideHistoryWindow", "VersionGone"), (
                number,
                form,
            )
    life.pipeline.close()


@pytest.mark.parametrize("break_", BREAKS)
def test_positions_on_both_sides_of_a_break_are_refused_by_its_name(tmp_path: Path, break_: str) -> None:
    """Records of partition 1 are older by their times, so that a time may lie on both sides, too."""
    life = Life(tmp_path, skew=3)
    life.go_on(2)
    BREAKS[break_](life)
    life.go_on(1)
    rng, mixed = life.pipeline.rng, 0
    points: list[tuple[Point, Callable[[], Rows]]] = []
    for _ in range(12):
        cut = {partition: rng.randint(0, end) for partition, end in life.topic.ends.items()}
        points.append((At.positions(cut), partial(life.rows_of, cut)))
    for batch in range(-3, life.batch + 2):
        ms = FIRST_MS + batch * BATCH_MS
        points.append((At.record_time(at_ms(ms)), partial(life.rows_before, ms)))
    for point, expected in points:
        found = said(life, point)
        try:
            assert found == expected(), point
        except Mixed:
            mixed += 1
            assert isinstance(found, InvalidInput), point
            assert re.search(NAMED[break_], str(found)), found
    assert (mixed > 0) == (break_ in NAMED), mixed
    life.pipeline.close()


NAMED = {
    "restored, `drop`": "restore at table version .* the rows merged since the restored version were dropped",
    "topic made anew": "the topic was recreated",
    "partitions added": "partitions were added",
    "bulk load": "bulk load at table version",
}
"""Of the errors; what is replayed has one history."""


def test_a_point_from_before_attach_is_refused(tmp_path: Path) -> None:
    rows: list[Row] = [{"region": "mine", "id": id, "a": id, "s": None} for id in range(20)]
    life = Life(tmp_path, attached=rows)
    before = cast("Any", lance.dataset(life.pipeline.uri, version=1))
    first = int(before.versions()[0]["timestamp"].timestamp() * 1000)
    life.go_on(1)
    page = table_of_page()
    gone: Mapping[str, Point] = {"version": At.version(1), "timestamp": At.timestamp(at_ms(first))}
    for form, point in gone.items():
        found = said(life, point)
        assert page[form, "attached"].startswith("refused")
        assert isinstance(found, InvalidInput | VersionGone), found
        assert re.search("before the table was lancewal's|there was no table", str(found)), found
    none = dict.fromkeys(life.topic.ends, 0)
    there: Mapping[str, Point] = {"positions": At.positions(none), "record-time": At.record_time(at_ms(FIRST_MS))}
    for form, point in there.items():
        assert page[form, "attached"].startswith("the rows that were attached")
        assert said(life, point) == life.rows_of(none)
        assert len(life.rows_of(none)) == len(rows)
    life.pipeline.close()
