"""Kept cuts of tables to which something happens, before, while and after: what is in the cut, and that it stays so.

The page docs/how-to/read-tables-together.md has the answers as a table.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancewal_core.catalog.cut import Cut
from lancewal_core.cli.program import run
from lancewal_core.errors import PartitionCountChanged, TableDropped, TableRestored
from lancewal_core.names.ids import Position
from lancewal_core.rows.ttl import Ttl
from lancewal_core.settings.load import Settings
from lancewal_core.table.columns.changes import Widened
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.contract import Contract, read_contract
from lancewal_core.table.snapshots import snapshots
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.cuts.positions import PositionSource
from lancewal_flusher.upkeep.expiry import Expired, OldestTimes, expire_next
from lancewal_flusher.upkeep.widening import WideningState, widen_next
from lancewal_kafka.topic import TopicState
from lancewal_reader.cuts import open_cut
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import open_table
from lancewal_reader.unmerged.left_out import left_out_of
from lancewal_tables.cuts.make import CutWanted, make_cut
from lancewal_tables.define.alter import add_partitions, rebind_topic
from lancewal_tables.define.drop import drop, undrop
from lancewal_tables.load import whole
from lancewal_tables.load.deletes import DeletesSince
from lancewal_tables.load.files import find_files
from lancewal_tables.load.part import PartLoaded, load_part
from lancewal_tables.load.whole import LoadAsked, LoadBounds, load
from tests.support.pipeline import KEY, SMALL, Key, Pipeline, Row, by_key
from tests.support.repairs import command
from tests.tables.cuts.lake import Lake
from tests.tables.cuts.test_lagging import key_to

NAME = "shop.orders"


def rows_now(table: Pipeline) -> dict[Key, Row]:
    """What the table must show now."""
    return {key: dict(row) for key, row in table.oracle.items()}


def check(lake: Lake, cut: Cut, expected: Mapping[Key, Row], name: str = NAME) -> None:
    """The table of the cut has these rows, by the reader and by plain Lance."""
    assert by_key(open_cut(lake.catalog, cut.name, open_table)[name].to_arrow()) == expected
    of = cut.tables[name]
    assert by_key(lance.dataset(of.uri).checkout_version((of.snapshot, None)).to_table()) == expected


def positions(cut: Cut) -> dict[int, int]:
    return {region.partition: int(at) for region, at in Receipt.parse(cut.tables[NAME].receipt).positions.items()}


# -- partitions ----------------------------------------------------------------------------------------------------


class Brokers:
    """What the brokers say of the table's topic."""

    def __init__(self, table: Pipeline, topic_id: str = "topic-id", partitions: int = 3) -> None:
        self._table, self._topic_id, self._partitions = table, topic_id, partitions

    def describe(self, topic: str) -> Any:
        return TopicState(topic, self._topic_id, self._partitions, False)

    def begins(self, topic: str, partitions: Collection[int]) -> dict[int, Position]:
        return dict.fromkeys(partitions, Position(0))

    def ends(self, topic: str, partitions: Collection[int], *, committed: bool = True) -> dict[int, Position]:
        return {partition: Position(len(self._table.messages(partition))) for partition in partitions}


def add_one(table: Pipeline) -> None:
    """The topic gets a third partition, which the table takes up."""
    table.merge_all()
    add_partitions(table.flusher(), table.flusher().new_id, 3, Brokers(table))
    table.take_up_contract()


def test_partitions_added_before_are_in_it_and_those_added_later_are_not(lake: Lake) -> None:
    table, before = lake.of[NAME], rows_now(lake.of[NAME])
    first = lake.make("first")
    add_one(table)
    lake.produce(40)
    assert len(table.messages(2)) > 0
    second, then = lake.make("second"), rows_now(table)
    lake.produce(20)
    table.merge_all()
    assert [sorted(positions(cut)) for cut in (first, second)] == [[0, 1], [0, 1, 2]]
    check(lake, first, before)
    check(lake, second, then)


def test_while_partitions_are_taken_up_no_cut_is_made(lake: Lake) -> None:
    """The command has opened the table with two.  Its positions say nothing of the third."""
    table = lake.of[NAME]

    def ends(contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        found = lake.ends(contracts)
        add_one(table)
        return found

    with pytest.raises(
        PartitionCountChanged,
        match=r"Table shop\.orders: the partitions or the topic of its contract changed.*Make the cut again",
    ):
        make_cut(lake.catalog, lake.members(), CutWanted("june"), PositionSource(ends), lake.tasks)
    assert lake.catalog.cuts() == {}
    assert all(snapshots(one.table) == [] for one in lake.of.values())
    lake.produce(30)
    check(lake, lake.make("june"), rows_now(table))


def test_a_topic_made_anew_does_not_change_it(lake: Lake) -> None:
    table, before = lake.of[NAME], rows_now(lake.of[NAME])
    cut = lake.make("june")
    table.merge_all()
    settings = Settings.model_validate({"table": {"uri": table.uri}, "kafka": {"bootstrap_servers": "nobody:1"}})
    brokers: Any = Brokers(table, "topic-id-2", 2)
    rebind_topic(settings, "topic-id-2", brokers)
    table.take_up_contract()
    table.produce(20)
    table.ingest()
    check(lake, cut, before)
    after = lake.make("july", NAME)
    assert sum(positions(after).values()) == 20
    check(lake, after, rows_now(table))
    table.merge_all()
    check(lake, cut, before)


# -- columns -------------------------------------------------------------------------------------------------------


def widen(table: Pipeline) -> None:
    change = Widened(("a",), pa.int64())
    change_columns(table.store, table.table, table.clock, lambda: uuid.uuid4().hex, [change])
    for _ in range(4):
        table.contract = read_contract(table.store, table.uri)
        widen_next(table.flusher(), WideningState(), 60.0)
    table.columns = table.contract.rows.table
    assert table.columns.field("a").type == pa.int64()


CHANGES: dict[str, Callable[[Pipeline], None]] = {
    "added": lambda table: table.change_columns(added={"more": 'string = "none"'}),
    "dropped": lambda table: table.change_columns({"s": None}),
    "renamed": lambda table: table.change_columns({"s": "text"}),
    "widened": widen,
}


@pytest.mark.parametrize("change", CHANGES)
def test_columns_changed_later_do_not_change_it(tmp_path: Path, seed: int, change: str) -> None:
    narrow = pa.schema([*KEY, ("a", pa.int32()), ("s", pa.string())])
    lake = Lake(tmp_path, (), seed)
    table = Pipeline(tmp_path / NAME, narrow, seed=seed, topic=NAME, partitions=2, seal_rows=20)
    lake.add(NAME, table)
    lake.produce(30)
    table.merge_all()
    lake.produce(10)
    cut, expected = lake.make("june"), rows_now(table)
    CHANGES[change](table)
    table.replace_worker()
    lake.produce(30)
    table.merge_all()
    check(lake, cut, expected)
    shown = open_cut(lake.catalog, "june", open_table)[NAME].to_arrow().schema
    assert [(field.name, field.type) for field in shown] == [(field.name, field.type) for field in narrow]
    after = lake.make("july")
    check(lake, after, rows_now(table))
    check(lake, cut, expected)
    lake.close()


# -- rows that come and go without a record --------------------------------------------------------------------------


def load_rows(lake: Lake, folder: Path, name: str, part_rows: int = 100) -> dict[Key, Row]:
    """A bulk load of ten rows of keys that Kafka does not have, in parts of so many."""
    rows: list[Row] = [{"region": name, "id": id, "a": id, "s": "x"} for id in range(10)]
    pq.write_table(pa.Table.from_pylist(rows, SMALL), folder / f"{name}.parquet")
    load(
        lake.of[NAME].flusher(),
        find_files([str(folder / f"{name}.parquet")], {}),
        LoadAsked(name, bounds=LoadBounds(part_rows)),
    )
    return {(row["region"], row["id"]): row for row in rows}


def test_it_has_what_a_load_had_committed(lake: Lake, tmp_path: Path) -> None:
    """Rows that come later are not in the cut."""
    table = lake.of[NAME]
    table.merge_all()
    table.oracle |= load_rows(lake, tmp_path, "first")
    cut, expected = lake.make("june"), rows_now(table)
    check(lake, cut, expected)
    table.oracle |= load_rows(lake, tmp_path, "second")
    table.upsert("first", 3, a=-1)
    table.merge_all()
    check(lake, cut, expected)
    check(lake, lake.make("july"), rows_now(table))


def test_while_a_load_runs_it_has_the_parts_that_are_in(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.of[NAME]
    table.merge_all()
    loaded: list[pa.Table] = []
    cuts: list[tuple[Cut, dict[Key, Row]]] = []

    def then_cut(context: FlusherContext, rows: pa.Table, deletes: DeletesSince) -> PartLoaded:
        done = load_part(context, rows, deletes)
        loaded.append(rows.select(table.columns.names))
        expected = rows_now(table) | by_key(pa.concat_tables(loaded))
        cuts.append((lake.make(f"part-{len(loaded)}", NAME), expected))
        return done

    monkeypatch.setattr(whole, "load_part", then_cut)
    table.oracle |= load_rows(lake, tmp_path, "rows", part_rows=4)
    table.produce(20)
    table.merge_all()
    assert [len(expected) - len(cuts[0][1]) for _, expected in cuts] == [0, 4, 6]
    for cut, expected in cuts:
        check(lake, cut, expected)


def test_rows_that_expire_later_stay_in_it(tmp_path: Path, seed: int) -> None:
    lake, day_s = Lake(tmp_path, (), seed), 86_400
    columns = pa.schema([*KEY, ("a", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    terms: dict[str, Any] = {"patches": False, "ttl_column": "at", "ttl_s": day_s, "history_window_s": 0}
    table = Pipeline(tmp_path / NAME, columns, seed=seed, topic=NAME, partitions=2, **terms)
    lake.add(NAME, table)
    now = datetime.fromtimestamp(table.clock.now_ms() / 1000, UTC)
    for id, hours in enumerate([30, 20, 1]):
        table.upsert("r", id, a=id, at=now - timedelta(hours=hours))
    table.merge_all()

    def expire(gone: int) -> None:
        done = expire_next(table.flusher(), Ttl("at", day_s), OldestTimes(), 1_000)
        assert isinstance(done, Expired)
        del table.oracle["r", gone]

    whole, all_rows = lake.make("whole"), rows_now(table)
    expire(0)
    half, rows = lake.make("half"), rows_now(table)
    table.clock.ahead_s += 5 * 3600
    expire(1)
    table.upsert("r", 7, a=7, at=now)
    table.merge_all()
    check(lake, whole, all_rows)
    check(lake, half, rows)
    assert len(rows) == 2
    lake.close()


# -- the table as a whole --------------------------------------------------------------------------------------------


def test_a_restored_table_keeps_its_cuts_and_gives_none_until_that_is_settled(lake: Lake) -> None:
    table = lake.of[NAME]
    table.merge_all()
    version, merged = table.table.newest().version, rows_now(table)
    lake.produce(30)
    table.merge_all()
    cut, expected = lake.make("june"), rows_now(table)
    cast("Any", lance.dataset(table.uri, version=version)).restore()
    check(lake, cut, expected)
    with pytest.raises(TableRestored, match=r"shop\.orders"):
        lake.make("july")
    assert lake.catalog.cut("july") is None
    command(table, "restored", "--rows-since", "drop")
    check(lake, cut, expected)
    after = lake.make("july")
    assert sum(positions(after).values()) == 70, "the records since are dropped, and count as read"
    check(lake, after, merged)


def test_another_group_and_another_name_change_nothing(lake: Lake) -> None:
    table = lake.of[NAME]
    cut, expected = lake.make("june"), rows_now(table)
    before = lake.catalog.table(NAME)
    assert before is not None
    moved = before.model_copy(update={"group_id": "others", "write_id": "2"})
    assert lake.catalog.swap_table(NAME, before, moved)
    renamed = moved.model_copy(update={"name": "crm.orders", "write_id": "3"})
    assert lake.catalog.swap_table("crm.orders", None, renamed)
    assert lake.catalog.swap_table(NAME, moved, None)
    table.replace_worker()
    lake.produce(20)
    table.merge_all()
    check(lake, cut, expected)


def test_keys_in_conflict_are_left_out_and_counted(tmp_path: Path, seed: int) -> None:
    lake = Lake(tmp_path, (), seed)
    table = Pipeline(tmp_path / NAME, seed=seed, topic=NAME, partitions=2, keyed_by=lambda *_: key_to(0))
    lake.add(NAME, table)
    table.upsert("r", 1, a=1)
    table.upsert("r", 2, a=2)
    table.merge_all()
    owned = rows_now(table)
    for partition in range(2):
        table.keyed_by = lambda *_, partition=partition: key_to(partition)
        table.upsert("r", 3, a=partition)
    table.ingest()
    unmerged = lake.make("unmerged")
    table.merge_all()
    waiting = lake.make("waiting")
    for cut in (unmerged, waiting):
        check(lake, cut, owned)
        said = left_out_of(open_cut(lake.catalog, cut.name, open_table)[NAME].to_arrow().schema)
        assert said.waiting + said.unmerged == 1
    assert run(["conflict", "settle", f"{NAME}-1", "--all", "--yes", "-t", table.uri]) == 0
    table.merge_all()
    assert ("r", 3) in by_key(open_table(table.uri).to_arrow())
    check(lake, unmerged, owned)
    check(lake, waiting, owned)
    lake.close()


def test_a_dropped_table_is_named_and_comes_again(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    table = lake.of[NAME]
    cut, expected = lake.make("june"), rows_now(table)
    show = ["cut", "show", "june", "-c", lake.config()]
    assert run(show) == 0
    contract, _ = drop(table.flusher(), lambda: uuid.uuid4().hex)
    with pytest.raises(TableDropped):
        open_cut(lake.catalog, "june", open_table)[NAME].to_arrow()
    capsys.readouterr()
    assert run(show) == 1
    assert "table_dropped" in capsys.readouterr().out
    with pytest.raises(TableDropped, match=r"shop\.orders"):
        lake.make("july")
    undrop(table.store, table.clock, contract)
    table.take_up_contract()
    assert run(show) == 0
    lake.produce(20)
    table.merge_all()
    check(lake, cut, expected)
