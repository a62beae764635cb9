"""Kept cuts of tables of several topics: what is in them, for how long, and what makes one fail or incomplete."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_core.catalog.catalog import cuts_of
from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.opened import open_directory
from lancewal_core.errors import CatalogUnavailable, CutMissing, InvalidInput, OutsideHistoryWindow, TokenTimeout
from lancewal_core.names.ids import Position, TableVersion
from lancewal_core.open import Address, open_at
from lancewal_core.process.clock import SystemClock
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.contract import Contract
from lancewal_core.table.control import Service, set_pause
from lancewal_core.table.snapshots import snapshots
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.cuts.positions import PositionSource
from lancewal_flusher.garbage.snapshots import drop_overdue, drop_snapshot
from lancewal_reader.point.receipt import Receipt
from lancewal_tables.cuts import make
from lancewal_tables.cuts.drop import drop_cut
from lancewal_tables.cuts.held import look_at
from lancewal_tables.cuts.left_over import snapshots_of_cuts
from lancewal_tables.cuts.make import CutWanted, make_cut
from lancewal_tables.snapshots import make as snapshots_make
from lancewal_tables.snapshots.make import make_snapshot
from tests.support.pipeline import Pipeline, by_key
from tests.tables.cuts.lake import TABLES, Lake


def snapshot_names(lake: Lake) -> set[str]:
    return {one.name for table in lake.of.values() for one in snapshots(table.table)}


def test_a_cut_is_the_fold_up_to_its_positions_whatever_comes_later(lake: Lake) -> None:
    first = lake.make("first")
    assert set(first.tables) == set(TABLES)
    assert first.holds == "positions"
    for _ in range(3):
        lake.produce(30)
        for table in lake.of.values():
            table.merge_all()
            table.clock.ahead_s += 100_000
            table.collect()
    second = lake.make("second")
    lake.check(first, second)
    assert lake.expected(first, "shop.orders") != lake.expected(second, "shop.orders")
    for name, table in lake.of.items():
        cut_at = Receipt.parse(second.tables[name].receipt).positions
        assert {region.partition: int(at) for region, at in cut_at.items()} == {
            p: len(table.messages(p)) for p in range(2)
        }
    assert lake.catalog.cuts() == {"first": first, "second": second}


def test_plain_lance_reads_each_snapshot_of_a_cut(lake: Lake) -> None:
    cut = lake.make("june")
    lake.produce(20)
    for name, of in cut.tables.items():
        shown = lance.dataset(of.uri).checkout_version((of.snapshot, None)).to_table()
        assert by_key(shown) == lake.expected(cut, name)


def test_tables_of_one_topic_are_cut_at_the_same_positions(lake: Lake, tmp_path: Path) -> None:
    """The second has less of the topic: what is durable in both is cut."""
    behind = Pipeline(
        tmp_path / "behind", seed=lake.of["shop.orders"].rng.randrange(99), topic="shop.orders", partitions=2
    )
    behind._messages = [list(lake.of["shop.orders"].messages(p)) for p in range(2)]
    behind.replace_worker()
    behind.ingest()
    lake.add("shop.orders-again", behind)
    lake.of["shop.orders"].produce(20)
    lake.of["shop.orders"].ingest()
    members = lake.members("shop.orders", "shop.orders-again")
    cut = make_cut(lake.catalog, members, CutWanted("durable"), None, lake.tasks)
    one, two = (Receipt.parse(of.receipt).positions for of in cut.tables.values())
    assert one == two
    assert sum(one.values()) == 40
    lake.check(cut)


def test_records_from_the_positions_on_are_not_in_it(lake: Lake) -> None:
    """They become durable in all tables right after the ends were told."""

    def ends(contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        found = lake.ends(contracts)
        lake.produce(15)
        return found

    cut = make_cut(lake.catalog, lake.members(), CutWanted("june"), PositionSource(ends), lake.tasks)
    lake.check(cut)
    assert sum(sum(Receipt.parse(of.receipt).positions.values()) for of in cut.tables.values()) == 80


def test_a_table_that_lags_is_named_and_nothing_is_kept(lake: Lake) -> None:
    lake.of["shop.items"].produce(30)
    table = lake.of["shop.orders"]
    table.produce(30)
    set_pause(table.store, table.clock, lambda: "x", Service.INGEST, "resumed", table.contract.making)
    with pytest.raises(TokenTimeout) as raised:
        lake.make("june", wait_s=0.0)
    said = str(raised.value)
    assert said.index("shop.orders (ingest is paused until resumed): partition 0 at") < said.index(
        "shop.items (it has not moved)"
    )
    assert lake.catalog.cuts() == {}
    assert snapshot_names(lake) == set()


def test_if_one_snapshot_cannot_be_made_no_other_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(context: object, reads: object, *wanted: object) -> object:
        if getattr(reads, "uri", "") == lake.of["shop.items"].uri:
            raise OutsideHistoryWindow("it is trimmed")
        return make_snapshot(context, reads, *wanted)  # type: ignore[arg-type] # what it was given

    monkeypatch.setattr(make, "make_snapshot", failing)
    with pytest.raises(OutsideHistoryWindow, match=r"cut june was not made\. Table shop\.items: it is trimmed"):
        lake.make("june")
    assert snapshot_names(lake) == set()


def test_a_name_that_is_taken_is_left_alone(lake: Lake) -> None:
    cut = lake.make("june")
    with pytest.raises(InvalidInput, match="there is a cut june already"):
        lake.make("june")
    lake.check(cut)
    assert snapshot_names(lake) == {of.snapshot for of in cut.tables.values()}
    with pytest.raises(InvalidInput, match="not the name of a cut"):
        lake.make("end.of.june")


def test_of_two_at_once_one_is_made_and_the_other_is_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is done while the first one makes a snapshot, which it then takes for left over."""
    made: list[Cut] = []
    commit = snapshots_make._commit

    def interrupted(context: FlusherContext, *of: Any) -> TableVersion:
        version = commit(context, *of)
        if not made and context.contract.topic == "shop.items":
            monkeypatch.setattr(snapshots_make, "_commit", commit)
            made.append(lake.make("june"))
        return version

    monkeypatch.setattr(snapshots_make, "_commit", interrupted)
    with pytest.raises(InvalidInput, match="there is a cut june already"):
        lake.make("june")
    lake.check(*made)
    assert snapshot_names(lake) == {of.snapshot for of in made[0].tables.values()}


def test_a_dropped_cut_leaves_nothing(lake: Lake) -> None:
    cut, other = lake.make("june"), lake.make("july")
    uuid = lake.of["shop.items"].contract.table_uuid
    assert cuts_of(lake.catalog, "shop.items", uuid) == cuts_of(lake.catalog, "shop.items", None) == [other, cut]
    tables = {name: table.table for name, table in lake.of.items()}
    assert drop_cut(lake.catalog, cut, tables, lake.tasks) == dict.fromkeys(cut.tables, True)
    assert lake.catalog.cuts() == {"july": other}
    assert snapshot_names(lake) == {of.snapshot for of in other.tables.values()}
    assert drop_cut(lake.catalog, cut, tables, lake.tasks) == dict.fromkeys(cut.tables, False), "once more"
    again = lake.make("june")
    with pytest.raises(CutMissing, match="replaced or dropped cut"):
        drop_cut(lake.catalog, cut, tables, lake.tasks)
    lake.check(again, other)
    drop_cut(lake.catalog, again, tables, lake.tasks)
    assert cuts_of(lake.catalog, "shop.items", uuid) == cuts_of(lake.catalog, "shop.items", None) == [other]


@pytest.mark.parametrize("then", ["published again", "dropped", "kept"])
def test_a_moving_cut_is_dropped_while_it_is_published(lake: Lake, then: str) -> None:
    """Somebody reads the cut, and decides to drop it.  It is published again meanwhile, or dropped, or a kept cut has its
    name by then."""
    kept = lake.make("june")
    seen = kept.model_copy(update={"name": "live", "moving": True, "write_id": "w1"})
    later = seen.model_copy(update={"number": 2, "write_id": "w2"})
    assert lake.catalog.swap_cut("live", None, seen)
    assert lake.catalog.swap_cut("live", seen, later if then == "published again" else None)
    stays = {"june": kept}
    if then == "kept":
        stays["live"] = lake.make("live")
    assert drop_cut(lake.catalog, seen, {}, lake.tasks) == {}
    assert lake.catalog.cuts() == stays


def test_a_cut_whose_time_is_over_goes_and_makes_way(lake: Lake) -> None:
    over = lake.make("june", for_ms=1)
    for table in lake.of.values():
        drop_overdue(table.table, (over.until_ms or 0) + 1_000)
    assert snapshot_names(lake) == set()
    cut = lake.make("june")
    assert cut.write_id != over.write_id
    lake.check(cut)


@pytest.mark.parametrize("root", ["{}", "{}/", "file://{}", "{}/../lake", "{}-link"])
def test_what_a_dead_maker_left_over_goes_with_the_next_making(
    lake: Lake, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the next one writes the address of the catalog in another way."""
    with monkeypatch.context() as patch:
        patch.setattr(type(lake.catalog), "swap_cut", _no_answer)
        with pytest.raises(CatalogUnavailable, match="it is unknown whether cut june was made"):
            lake.make("june")
    left = {one.branch.name for table in lake.of.values() for one in snapshots_of_cuts(table.table, lake.catalog.where)}
    assert left == snapshot_names(lake)
    assert len(left) == 1
    Path(f"{lake.root}-link").symlink_to(lake.root)
    lake.catalog = open_directory(root.format(lake.root))
    cut = lake.make("june")
    assert snapshot_names(lake) == {of.snapshot for of in cut.tables.values()}
    assert not left & snapshot_names(lake)


def _no_answer(catalog: object, name: str, instead_of: Cut | None, new: Cut | None) -> bool:
    raise CatalogUnavailable("the catalog does not answer")


def test_a_snapshot_dropped_by_hand_and_a_folder_that_is_gone_are_named(lake: Lake) -> None:
    cut = lake.make("june")
    lake.produce(20)

    def opened(uri: str) -> OpenedTable:
        return open_at(Address(uri), lake.tasks, SystemClock())

    whole = look_at(cut, opened, lake.tasks)
    assert [one.fault for one in whole.values()] == ["", ""]
    assert all((one.nbytes or 0) > 0 for one in whole.values())
    drop_snapshot(lake.of["shop.orders"].table, cut.tables["shop.orders"].snapshot or "")
    shutil.rmtree(lake.of["shop.items"].uri)
    faults = {name: one.fault for name, one in look_at(cut, opened, lake.tasks).items()}
    for name, why in (("shop.orders", "The state is not there: "), ("shop.items", "There is no lancewal table at ")):
        assert faults[name].startswith(f"cut_missing: cut june is incomplete: its table {name} cannot be read. {why}")
