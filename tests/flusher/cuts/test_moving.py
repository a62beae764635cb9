"""Moving cuts of real tables in a folder: all change together, never go back, and are what the records below them make."""

from __future__ import annotations

import itertools
import random
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.opened import open_postgres
from lancewal_core.errors import (
    CatalogUnavailable,
    InvalidInput,
    LancewalError,
    PartitionCountChanged,
    TopicMissing,
    TopicReplaced,
)
from lancewal_core.settings.sections import MovingCutSettings
from lancewal_flusher.cuts import moving, open_tables
from lancewal_flusher.cuts.positions import CutMember
from lancewal_reader.point.receipt import Receipt
from tests.flusher.cuts.publishing import EVERY_S, NAMES, Publishing, called_anew, changed, check, cut_of, late
from tests.support.catalog_entries import entry
from tests.support.pipeline import Pipeline
from tests.support.postgres import PASSWORD, PostgresServer
from tests.tables.cuts.lake import Lake


@pytest.fixture(params=["directory", "postgres"])
def catalog_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_only_tables_that_changed_get_new_receipts(lake: Lake, live: Publishing) -> None:
    first = check(lake)
    assert first.moving
    assert (first.number, list(first.tables)) == (1, sorted(NAMES))
    table = lake.of["shop.items"]
    table.produce(5)
    table.ingest()
    turn = live.turn()
    second = check(lake)
    assert turn.published
    assert second.number == 2
    assert changed(first, second) == ["shop.items"]
    assert second.tables["shop.items"].snapshot is None
    assert live.opened == len(NAMES)


def test_nothing_is_published_when_nothing_changed(
    lake: Lake, live: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = check(lake)
    asked: list[str] = []

    def counted(name: str) -> None:
        call = getattr(lake.catalog, name)

        def count(*of: Any) -> Any:
            asked.append(name)
            return call(*of)

        monkeypatch.setattr(lake.catalog, name, count)

    for method in ("cut", "cuts", "table", "tables", "swap_cut"):
        counted(method)
    for _ in range(3):
        turn = live.turn()
        assert (turn.published, turn.current, turn.held) == (False, True, {})
    assert asked == ["cut"] * 3
    assert cut_of(lake.catalog) == first


def test_a_merge_gives_a_new_receipt_when_it_is_renewed(lake: Lake, live: Publishing) -> None:
    first = check(lake)
    lake.of["shop.items"].merge_all()
    assert not live.turn().published
    live.clock.sleep(moving.RENEW_S)
    assert live.turn().published
    second = check(lake)
    assert changed(first, second) == ["shop.items"]
    positions = [Receipt.parse(cut.tables["shop.items"].receipt).positions for cut in (first, second)]
    assert positions[0] == positions[1]


def test_a_table_that_lags_holds_the_cut_back_and_is_named(lake: Lake, live: Publishing) -> None:
    first = check(lake)
    table = late(lake)
    lake.of["shop.orders"].produce(5)
    lake.of["shop.orders"].ingest()
    for _ in range(2):
        turn = live.turn()
        assert not turn.published
        assert not turn.current
        assert list(turn.held) == ["shop.items"]
        assert turn.held["shop.items"].startswith("it has not moved: partition ")
        assert cut_of(lake.catalog) == first
    lake.of["shop.orders"].produce(5)
    lake.of["shop.orders"].ingest()
    table.ingest()
    assert live.turn().published
    second = check(lake)
    assert changed(first, second) == ["shop.items", "shop.orders"]
    assert live.turn().published
    assert changed(second, check(lake)) == ["shop.orders"]  # what came while the cut was held back


def test_a_table_that_lags_is_left_out_if_the_setting_says_so(lake: Lake) -> None:
    live = Publishing(lake, leave_out=True)
    assert live.turn().published
    table = late(lake)
    turn = live.turn()
    assert turn.published
    assert list(turn.left_out) == ["shop.items"]
    cut = check(lake)
    assert list(cut.tables) == ["shop.orders", "shop.people"]
    assert "has not moved" in cut.left_out["shop.items"]
    assert not live.turn().published
    table.ingest()
    assert live.turn().published
    assert list(check(lake).tables) == sorted(NAMES)


class Busy(Publishing):
    """A publisher with a short interval.  Some tables have each record two seconds after it was produced."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        self.cut.wanted = MovingCutSettings(name="live", tables=("shop.*",), every=1.0)
        self.busy: list[Pipeline] = []
        self.pauses = 0

    def pause(self, seconds: float) -> bool:
        self.pauses += 1
        if self.pauses % 2 == 0:
            for table in self.busy:
                table.ingest()
        return super().pause(seconds)


def test_tables_that_are_always_busy_join_and_hold_back_nothing_with_a_short_interval(
    lake: Lake, tmp_path: Path
) -> None:
    live = Busy(lake)
    assert live.cut.turn().published
    joined = Pipeline(tmp_path / "shop.new", seed=9, seal_rows=20, batch=15, topic="shop.new", partitions=2)
    lake.add("shop.new", joined)
    live.busy = [joined, lake.of["shop.items"]]
    live.clock.sleep(open_tables.LOOK_S)
    for _ in range(10):
        for table in live.busy:
            table.produce(2)
        turn = live.cut.turn()
        assert (turn.published, turn.held, turn.left_out) == (True, {}, {})
        live.clock.sleep(turn.again_s)
    assert list(check(lake).tables) == sorted([*NAMES, "shop.new"])


def test_a_reason_that_no_catalog_can_store_is_escaped(lake: Lake, catalog_kind: str, postgres: PostgresServer) -> None:
    catalog = lake.catalog
    if catalog_kind == "postgres":
        catalog = open_postgres(postgres.database(), PASSWORD)
        for name, found in lake.catalog.tables().items():
            assert catalog.swap_table(name, None, found)
    live = Publishing(lake, catalog, leave_out=True)
    live.source_fails = TopicMissing("no \udcff and no \0", topic="shop.items")
    assert live.turn().published
    assert cut_of(catalog).left_out == {"shop.items": r"topic_missing: no \udcff and no \x00"}


def test_tables_join_and_leave(lake: Lake, live: Publishing, tmp_path: Path) -> None:
    joined = Pipeline(tmp_path / "shop.new", seed=9, seal_rows=20, batch=15, topic="shop.new", partitions=2)
    lake.add("shop.new", joined)
    joined.produce(5)
    live.turn()
    live.clock.sleep(open_tables.LOOK_S)
    turn = live.turn()
    assert not turn.held  # who has not been in the cut does not hold it back
    assert list(turn.left_out) == ["shop.new"]
    assert "shop.new" not in check(lake).tables
    joined.ingest()
    assert live.turn().published
    assert "shop.new" in check(lake).tables
    there = lake.catalog.table("shop.items")
    assert there is not None
    assert lake.catalog.swap_table(
        "shop.items", there, entry(**{**there.model_dump(), "state": "dropped", "write_id": "w"})
    )
    live.clock.sleep(open_tables.LOOK_S)
    assert live.turn().published
    assert "shop.items" not in check(lake).tables
    for name in ("shop.new", "shop.orders", "shop.people"):
        assert lake.catalog.swap_table(name, lake.catalog.table(name), None)
    live.clock.sleep(open_tables.LOOK_S)
    before = cut_of(lake.catalog)
    with pytest.raises(
        InvalidInput, match=rf"is named shop\.\*\. Readers still see its number {before.number}, of shop\.new"
    ):
        live.turn()  # no cut has no table
    assert cut_of(lake.catalog) == before
    table = lake.of["shop.people"]
    assert lake.catalog.swap_table(
        "shop.people", None, entry("shop.people", table.uri, table_uuid=table.contract.table_uuid)
    )
    live.clock.sleep(open_tables.LOOK_S)
    assert live.turn().published
    assert list(check(lake).tables) == ["shop.people"]


def test_patterns_that_name_no_table_are_told(lake: Lake) -> None:
    live = Publishing(lake, tables=("shpo.*", "crm.*"))
    for _ in range(2):
        with pytest.raises(
            InvalidInput, match=r"no table of the catalog .* is named shpo\.\* or crm\.\*\. Correct the cut"
        ):
            live.turn()
    assert lake.catalog.cut("live") is None


def test_a_table_that_was_looked_at_once_is_late(lake: Lake, live: Publishing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows whether it has moved."""
    monkeypatch.setattr(moving, "SETTLE_S", 2 * EVERY_S)
    lake.of["shop.items"].produce(3)
    assert live.turn().held["shop.items"].startswith("it is late: partition ")


def test_a_table_made_again_under_its_name_begins_anew(lake: Lake, live: Publishing, tmp_path: Path) -> None:
    again = Pipeline(tmp_path / "again", seed=5, seal_rows=20, batch=15, topic="shop.items", partitions=2)
    called_anew(again)
    again.produce(1)
    again.ingest()
    there = lake.catalog.table("shop.items")
    lake.of["shop.items"] = again
    made = entry("shop.items", again.uri, table_uuid=again.contract.table_uuid, topic="shop.items")
    assert lake.catalog.swap_table("shop.items", there, made)
    live.clock.sleep(open_tables.LOOK_S)
    assert live.turn().published
    cut = check(lake)
    assert (cut.tables["shop.items"].table_uuid, cut.tables["shop.items"].uri) == ("another-uuid", again.uri)


def test_a_table_put_back_to_an_older_state_holds_the_cut_back_until_it_has_again_what_it_had(
    lake: Lake, live: Publishing, tmp_path: Path
) -> None:
    first = check(lake)
    back = Pipeline(tmp_path / "back", seed=1, seal_rows=20, batch=15, topic="shop.items", partitions=2)
    back.produce(1)
    back.ingest()
    there, lake.of["shop.items"] = lake.catalog.table("shop.items"), back
    assert lake.catalog.swap_table(
        "shop.items", there, entry("shop.items", back.uri, table_uuid="table-uuid", topic="t")
    )
    live.clock.sleep(open_tables.LOOK_S)
    assert list(live.turn().held) == ["shop.items"]
    assert cut_of(lake.catalog) == first
    back.produce(60)
    back.ingest()
    assert live.turn().published
    positions = [Receipt.parse(cut.tables["shop.items"].receipt).positions for cut in (first, check(lake))]
    assert all(positions[1][region] >= at for region, at in positions[0].items())


@pytest.mark.parametrize("kind", [TopicReplaced, TopicMissing, PartitionCountChanged])
def test_a_topic_that_is_another_one_holds_the_cut_back(
    lake: Lake, live: Publishing, kind: type[LancewalError]
) -> None:
    """Or one that is gone, or that has got partitions."""
    live.source_fails = kind("the topic is not that of the contract", topic="shop.items")
    turn = live.turn()
    assert list(turn.held) == ["shop.items"]
    assert turn.held["shop.items"] == f"{kind.kind}: the topic is not that of the contract"
    live.source_fails = None
    opened = live.opened
    assert live.turn().current
    assert live.opened == opened + 1  # with its newest contract


def test_a_table_whose_folder_vanished_holds_the_cut_back_until_somebody_forgets_it(
    lake: Lake, live: Publishing
) -> None:
    first = check(lake)
    lake.of["shop.items"].produce(3)
    shutil.rmtree(lake.of["shop.items"].uri)
    for _ in range(2):
        turn = live.turn()
        assert list(turn.held) == ["shop.items"]
        assert not turn.published
    assert cut_of(lake.catalog) == first
    assert lake.catalog.swap_table("shop.items", lake.catalog.table("shop.items"), None)
    live.clock.sleep(open_tables.LOOK_S)
    assert live.turn().published
    assert list(check(lake).tables) == ["shop.orders", "shop.people"]


def test_a_table_that_cannot_be_opened_holds_back_the_first_cut(lake: Lake) -> None:
    live = Publishing(lake)
    table = lake.of.pop("shop.items")

    def refuse(found: TableEntry, stack: ExitStack) -> CutMember:
        if found.name == "shop.items":
            raise InvalidInput("there is no table")
        return Publishing.open_table(live, found, stack)

    live.cut._open._open_table = refuse
    turn = live.turn()
    assert turn.held == {"shop.items": "invalid_input: there is no table"}
    assert turn.cut is None
    lake.of["shop.items"] = table
    live.cut._open._open_table = live.open_table
    assert live.turn().published


def test_a_kept_cut_of_that_name_is_refused(lake: Lake) -> None:
    lake.make("live", *NAMES)
    with pytest.raises(InvalidInput, match="cut live is a kept one, and flusher"):
        Publishing(lake).turn()


def test_a_dropped_cut_is_published_again(lake: Lake, live: Publishing) -> None:
    first = check(lake)
    assert lake.catalog.swap_cut("live", first, None)
    assert live.turn().published
    assert check(lake).number > first.number


class Away:
    """A catalog that may be away, before or after it has done what was asked."""

    def __init__(self, catalog: Any) -> None:
        self._catalog, self.before, self.after = catalog, False, False

    def __getattr__(self, name: str) -> Any:
        def call(*of: Any) -> Any:
            if self.before:
                raise CatalogUnavailable("it does not answer")
            answer = getattr(self._catalog, name)(*of)
            if self.after and name == "swap_cut":
                raise CatalogUnavailable("its answer was lost")
            return answer

        return call


def test_random_histories_with_several_publishers(
    tmp_path: Path, seed: int, catalog_kind: str, postgres: PostgresServer
) -> None:
    """Two publishers with clocks of their own, one of which begins anew now and then, over a catalog that is away now and
    then.  Each publication is the fold of the records below it, and none goes back."""
    lake, rng = Lake(tmp_path, NAMES, seed), random.Random(f"{seed}/moving")
    with ExitStack() as stack:
        stack.callback(lake.close)
        held: Any = lake.catalog
        if catalog_kind == "postgres":
            held = open_postgres(postgres.database(), PASSWORD)
            for name, found in lake.catalog.tables().items():
                assert held.swap_table(name, None, found)
        catalog = Away(held)
        publishers = [Publishing(lake, catalog), Publishing(lake, catalog)]
        published: list[Cut] = []
        for _ in range(60):
            act = rng.random()
            table = lake.of[rng.choice(NAMES)]
            if act < 0.35:
                table.produce(rng.randint(1, 8))
                if rng.random() < 0.8:
                    table.ingest()
            elif act < 0.45:
                table.merge_all()
            elif act < 0.5:
                publishers[rng.randrange(2)] = Publishing(lake, catalog)
            else:
                catalog.before, catalog.after = rng.random() < 0.1, rng.random() < 0.1
                with suppress(CatalogUnavailable):
                    rng.choice(publishers).turn()
                catalog.before = catalog.after = False
                there = held.cut("live")
                if there is not None and (not published or there != published[-1]):
                    published.append(check(lake, held))
        for table in lake.of.values():
            table.ingest()
        final = [publishers[0].turn() for _ in range(3)]
        assert any(turn.current for turn in final)
        assert check(lake, held).left_out == {}
        assert len(published) > 3
        for before, after in itertools.pairwise(published):
            assert after.number > before.number
            for name, of in after.tables.items():
                was, now = (Receipt.parse(it.tables[name].receipt).positions for it in (before, after))
                assert all(now[region] >= at for region, at in was.items()), (name, of)
