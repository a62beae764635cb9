"""Cuts of nothing, of much, under odd names, for odd times, and while clocks jump."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from lancewal_core.catalog.catalog import tables_matching
from lancewal_core.cli.program import run
from lancewal_core.errors import InvalidInput, TopicMissing
from lancewal_core.names.ids import Position
from lancewal_core.names.words import CUT_NAME_MAX, TABLE_NAME_MAX
from lancewal_core.table.contract import Contract
from lancewal_core.table.snapshots import snapshots
from lancewal_flusher.cuts.positions import PositionSource
from lancewal_flusher.garbage.snapshots import drop_overdue
from lancewal_reader.cuts import open_cut
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import open_table
from lancewal_tables.cuts.make import CutWanted, make_cut
from tests.support.catalog_entries import entry
from tests.support.pipeline import Pipeline, ShiftedClock, by_key
from tests.tables.cuts.lake import TABLES, Lake

DAY_S = 86_400.0


@pytest.fixture
def lake(tmp_path: Path, seed: int) -> Iterator[Lake]:
    made = Lake(tmp_path, seed=seed)
    yield made
    made.close()


def nothing_kept(lake: Lake) -> bool:
    return lake.catalog.cuts() == {} and all(snapshots(table.table) == [] for table in lake.of.values())


def no_source(_: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
    raise AssertionError("nobody is asked")


def test_empty_topics_and_tables(lake: Lake) -> None:
    asked = lake.make("asked")
    durable = make_cut(lake.catalog, lake.members(), CutWanted("durable"), None, lake.tasks)
    lake.produce(30)
    for table in lake.of.values():
        table.merge_all()
    for cut in (asked, durable):
        lake.check(cut)
        for name, read in open_cut(lake.catalog, cut.name, open_table).items():
            assert read.count_rows() == 0
            assert set(Receipt.parse(cut.tables[name].receipt).positions.values()) <= {0}


def test_a_table_whose_rows_are_all_deleted(lake: Lake) -> None:
    for table in lake.of.values():
        table.upsert("r", 1, a=1)
        table.merge_all()
        table.delete("r", 1)
        table.ingest()
    lake.check(lake.make("june"))
    assert [table.count_rows() for table in open_cut(lake.catalog, "june", open_table).values()] == [0, 0]


def test_a_topic_that_is_gone_keeps_nothing(lake: Lake) -> None:
    def ends(_: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        raise TopicMissing("topic shop.items does not exist")

    lake.produce(10)
    with pytest.raises(TopicMissing, match=r"shop\.items"):
        make_cut(lake.catalog, lake.members(), CutWanted("june"), PositionSource(ends), lake.tasks)
    assert nothing_kept(lake)
    lake.check(make_cut(lake.catalog, lake.members(), CutWanted("june"), None, lake.tasks))


def test_many_partitions_and_tables(tmp_path: Path, seed: int) -> None:
    lake = Lake(tmp_path, (), seed)
    for number in range(30):
        name = f"shop.t{number}"
        table = Pipeline(tmp_path / name, seed=seed, topic=name, partitions=1 + number % 3 * 40)
        lake.add(name, table)
    busy = lake.of["shop.t29"]
    busy.produce(200)
    busy.ingest()
    cut = make_cut(lake.catalog, lake.members(), CutWanted("june"), None, lake.tasks)
    assert len(cut.tables) == 30
    assert len(Receipt.parse(cut.tables["shop.t29"].receipt).positions) > 40
    assert by_key(open_cut(lake.catalog, "june", open_table)["shop.t29"].to_arrow()) == busy.oracle
    lake.close()


@pytest.mark.parametrize("name", ["a" * CUT_NAME_MAX, "-", "_", "-a-", "9", "main", "HEAD", "cut-1-2-3"])
def test_names_that_a_cut_may_have(lake: Lake, name: str) -> None:
    lake.produce(10)
    lake.check(lake.make(name))
    config = lake.config()
    assert run(["cut", "show", "-c", config, "--", name]) == 0
    assert run(["cut", "drop", "--yes", "-c", config, "--", name]) == 0
    assert nothing_kept(lake)


@pytest.mark.parametrize(
    "name", ["", "a" * (CUT_NAME_MAX + 1), ".", "..", "a.b", "a/b", "../a", "a b", "ä", "a\n", "*"]
)
def test_names_that_no_cut_may_have(lake: Lake, name: str) -> None:
    with pytest.raises(InvalidInput, match="is not the name of a cut"):
        make_cut(lake.catalog, lake.members(), CutWanted(name), PositionSource(no_source), lake.tasks)
    assert nothing_kept(lake)


def test_patterns(lake: Lake, tmp_path: Path, seed: int) -> None:
    longest = "a" * TABLE_NAME_MAX
    lake.add(longest, Pipeline(tmp_path / "long", seed=seed, topic="long", partitions=1))
    gone = entry("shop.gone", "s3://lake/gone", state="dropped")
    assert lake.catalog.swap_table(gone.name, None, gone)
    everything = [longest, *sorted(TABLES)]
    for pattern, found in {
        "*": everything, "**": everything, "*.*": sorted(TABLES), "shop.*s*": sorted(TABLES), longest: [longest],
        "*a" * 90 + "*": [longest], "*.items": ["shop.items"],
    }.items():  # fmt: skip
        assert list(tables_matching(lake.catalog, (pattern,))) == found, pattern
    assert list(tables_matching(lake.catalog, ("shop.*", "*", "shop.items"))) == everything
    for pattern in ("", "shop.gone", "*b" * 90 + "*c", "a" * (TABLE_NAME_MAX + 1), "shop/*", "[a-z]*", "shop.?"):
        with pytest.raises(InvalidInput):
            tables_matching(lake.catalog, (pattern,))


def test_two_names_of_one_table(lake: Lake) -> None:
    orders = lake.of["shop.orders"]
    again = entry("shop.again", orders.uri, table_uuid=orders.contract.table_uuid, topic="shop.orders")
    assert lake.catalog.swap_table("shop.again", None, again)
    lake.of["shop.again"] = orders
    with pytest.raises(InvalidInput, match=r"shop\.orders and shop\.again are two names of the table at "):
        lake.make("june")
    del lake.of["shop.again"]
    assert nothing_kept(lake)


@pytest.mark.parametrize("option", ["--for", "--wait"])
@pytest.mark.parametrize("text", ["7", "-1d", "1.5h", "7 d", "1w", "9999999999d", "infd", "٣d", "d"])
def test_durations_that_are_none(lake: Lake, option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cut", "make", "june", "--tables", "*", "--up-to", "durable", f"{option}={text}", "-c", lake.config()]
    assert run(command) == 2
    assert f"{option} {text!r}: expected an integer and ms, s, m, h or d" in capsys.readouterr().err
    assert nothing_kept(lake)


def test_a_cut_that_would_end_after_all_times_is_refused_at_once(lake: Lake) -> None:
    with pytest.raises(InvalidInput, match="year 9999"):
        make_cut(
            lake.catalog,
            lake.members(),
            CutWanted("june", 999_999_999 * 86_400_000),
            PositionSource(no_source),
            lake.tasks,
        )
    assert nothing_kept(lake)


def test_a_cut_for_no_time_is_there_until_somebody_looks(lake: Lake) -> None:
    lake.produce(10)
    lake.check(lake.make("june", for_ms=0))
    table = lake.of["shop.orders"]
    assert len(drop_overdue(table.table, table.clock.now_ms())) == 1
    lake.check(lake.make("june", for_ms=0))


class Wall(ShiftedClock):
    """A clock that somebody sets.  Its monotonic time goes on."""

    def monotonic(self) -> float:
        return time.monotonic()


def jump(lake: Lake, seconds: float) -> None:
    for table in lake.of.values():
        table.clock.ahead_s += seconds


@pytest.mark.parametrize("jump_s", [-30 * DAY_S, 30 * DAY_S])
def test_a_clock_that_jumps_while_a_cut_is_made(lake: Lake, jump_s: float, capsys: pytest.CaptureFixture[str]) -> None:
    """What is in the cut does not depend on it.  Its end is counted from when the snapshots are made."""
    lake.produce(10)
    for table in lake.of.values():
        table.clock = Wall()

    def ends(contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        jump(lake, jump_s)
        return lake.ends(contracts)

    wanted = CutWanted("june", int(DAY_S * 1000))
    cut = make_cut(lake.catalog, lake.members(), wanted, PositionSource(ends), lake.tasks)
    lake.check(cut)
    assert cut.until_ms is not None
    assert DAY_S * 1000 - 60_000 < cut.until_ms - cut.made_ms <= DAY_S * 1000
    assert abs(cut.made_ms - cut.asked_ms - jump_s * 1000) < 600_000
    assert cut.took_ms >= 0
    assert run(["cut", "show", "june", "-o", "json", "-c", lake.config()]) == 0
    assert json.loads(capsys.readouterr().out)["cut"]["complete"] is True


def test_the_clock_of_who_looks_says_when_a_cut_is_over(lake: Lake) -> None:
    lake.produce(10)
    first = lake.make("june", for_ms=int(DAY_S * 1000))
    jump(lake, -30 * DAY_S)
    with pytest.raises(InvalidInput, match="there is a cut june already"):
        lake.make("june")
    jump(lake, 60 * DAY_S)
    second = lake.make("june")
    assert second.write_id != first.write_id
    lake.check(second)
