"""Reading at a cut: in Python and on the command line, kept and moving ones, and what cannot be read any more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from lance.namespace import RestAdapter

import lancewal
from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.cli.program import run
from lancewal_core.errors import CatalogRefused, CutMissing, InvalidInput, OutsideHistoryWindow, VersionGone
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_reader.cuts import open_cut
from lancewal_reader.point.at import point_of
from lancewal_reader.spark.source import pin_read
from lancewal_reader.table import open_table
from tests.support.pipeline import by_key
from tests.tables.cuts.lake import TABLES, Lake


def publish(lake: Lake, before: Cut | None = None) -> Cut:
    """A moving cut of what is durable now."""
    tables = {
        name: CutTable(
            uri=table.uri, table_uuid=table.contract.table_uuid, receipt=str(open_table(table.uri).receipt())
        )
        for name, table in lake.of.items()
    }
    number = 1 if before is None else before.number + 1
    new = Cut(
        name="live", moving=True, number=number, tables=tables, asked_ms=1, took_ms=0, made_ms=1, write_id=f"w{number}"
    )
    assert lake.catalog.swap_cut("live", before, new)
    return new


def test_every_read_of_a_table_of_a_cut_is_at_it(lake: Lake) -> None:
    made = lake.make("june")
    lake.produce(30)
    cut = open_cut(lake.catalog, "june", open_table)
    assert (cut.name, cut.number, cut.holds, list(cut)) == ("june", 1, "positions", list(TABLES))
    for name, table in cut.items():
        expected = lake.expected(made, name)
        assert sum(cut.positions(name).values()) == 40
        assert by_key(table.to_arrow()) == expected
        assert table.count_rows() == len(expected)
        assert str(table.receipt()) == made.tables[name].receipt
        key, row = next(iter(expected.items()))
        assert table.get([key]).to_arrow().to_pylist() == [row]
        newest = by_key(table.to_arrow(at=open_table(table.uri).receipt()))
        assert newest == lake.of[name].oracle != expected
        with pytest.raises(InvalidInput, match="at and consistency='eventual' cannot be given together"):
            table.to_arrow(consistency="eventual")


def test_a_cut_is_asked_for_a_table_without_opening_one(lake: Lake) -> None:
    lake.make("june")
    shutil.rmtree(lake.of["shop.items"].uri)
    cut = open_cut(lake.catalog, "june", open_table)
    assert "shop.items" in cut
    assert "shop.people" not in cut
    assert cut.get("shop.people") is None
    assert cut.get("shop.orders") is cut["shop.orders"]
    with pytest.raises(CutMissing, match=r"its table shop\.items cannot be read\. There is no lancewal table at "):
        cut.get("shop.items")


def test_why_a_table_was_left_out_is_told_by_name_and_by_address(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = publish(lake)
    late = {
        "tables": {"shop.items": whole.tables["shop.items"]}, "left_out": {"shop.orders": "it is late"},
        "number": 2, "write_id": "w2",
    }  # fmt: skip
    assert lake.catalog.swap_cut("live", whole, whole.model_copy(update=late))
    said = "cut live does not have the table shop.orders: it was left out, since it is late. It has shop.items"
    with pytest.raises(CutMissing, match=said):
        open_cut(lake.catalog, "live", open_table)["shop.orders"]
    for table in ("shop.orders", lake.of["shop.orders"].uri):
        assert run(["read", "-t", table, "--at", "cut:live", "-c", lake.config()]) == 2
        assert said in capsys.readouterr().err
    assert lake.catalog.swap_table("shop.orders", lake.catalog.table("shop.orders"), None)
    assert run(["read", "-t", lake.of["shop.orders"].uri, "--at", "cut:live", "-c", lake.config()]) == 2
    assert f"does not have the table {lake.of['shop.orders'].uri}. It has" in capsys.readouterr().err


def test_a_command_reads_a_table_at_a_cut(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    made = lake.make("june")
    lake.produce(10)
    config = lake.config()
    for name, table in lake.of.items():
        expected = lake.expected(made, name)
        assert run(["read", "-t", name, "--at", "cut:june", "-o", "jsonl", "-c", config]) == 0
        said = capsys.readouterr()
        rows = [json.loads(line) for line in said.out.splitlines()]
        assert {(row["region"], row["id"]): row for row in rows} == expected
        assert said.err.strip() == f"receipt: {made.tables[name].receipt}"
        assert run(["count", "-t", table.uri, "--at", "cut:june", "-c", config]) == 0
        assert capsys.readouterr().out.split()[0] == str(len(expected))
    assert run(["read", "-t", table.uri, "--at", "cut:june"]) == 2
    assert "names a cut, and no catalog is known here. For a command, set catalog.root" in capsys.readouterr().err
    assert run(["read", "-t", table.uri, "--at", "cut:july", "-c", config]) == 2
    assert "has no cut july" in capsys.readouterr().err


def test_a_point_that_names_a_cut_needs_a_catalog() -> None:
    with pytest.raises(InvalidInput, match="at='cut:june' names a cut, and no catalog is known here"):
        point_of("cut:june")


def test_what_is_gone_is_named(lake: Lake) -> None:
    made = lake.make("june")
    orders, items = (made.tables[name] for name in TABLES)
    cut = open_cut(lake.catalog, "june", open_table)
    table = cut["shop.orders"]
    drop_snapshot(lake.of["shop.orders"].table, orders.snapshot or "")
    with pytest.raises(CutMissing, match=f"cut june is incomplete: .* has no snapshot '{orders.snapshot}'"):
        table.to_arrow()
    shutil.rmtree(items.uri)
    with pytest.raises(
        CutMissing, match=r"cut june is incomplete: its table shop\.items cannot be read\. There is no "
    ):
        cut["shop.items"]
    with pytest.raises(CutMissing, match=r"cut june does not have the table crm\.x\. It has shop\.orders, shop\.items"):
        cut["crm.x"]
    with pytest.raises(CutMissing, match="has no cut july"):
        open_cut(lake.catalog, "july", open_table)


def test_another_table_at_the_same_address_is_not_taken_for_it(lake: Lake) -> None:
    made = lake.make("june")
    of = made.tables["shop.orders"].model_copy(update={"table_uuid": "another"})
    changed = made.model_copy(update={"name": "other", "tables": {"shop.orders": of}, "write_id": "x"})
    assert lake.catalog.swap_cut("other", None, changed)
    with pytest.raises(
        CutMissing, match=r"now the table with uuid table-uuid\. The cut has the table with uuid another"
    ):
        open_cut(lake.catalog, "other", open_table)["shop.orders"].to_arrow()


def test_a_moving_cut_is_pinned_once(lake: Lake) -> None:
    first = publish(lake)
    cut = open_cut(lake.catalog, "live", open_table)
    assert by_key(cut["shop.orders"].to_arrow()) == lake.expected(first, "shop.orders")
    lake.produce(30)
    second = publish(lake, first)
    assert by_key(cut["shop.items"].to_arrow()) == lake.expected(first, "shop.items")
    assert cut.number == 1
    newer = open_cut(lake.catalog, "live", open_table)
    assert newer.number == 2
    for name in TABLES:
        assert by_key(newer[name].to_arrow()) == lake.expected(second, name) == lake.of[name].oracle
    public = lancewal.open_catalog(lake.root).cut("live")
    assert (list(public), public.number) == (list(TABLES), 2)
    assert by_key(public["shop.orders"].to_arrow()) == lake.expected(second, "shop.orders")


def test_outside_the_windows_the_error_names_them(lake: Lake) -> None:
    """Its records are merged and trimmed, and a merge beyond it stands in for nothing."""
    publish(lake)
    table = lake.of["shop.orders"]
    table.produce(20)
    table.merge_all()
    window_s = table.contract.history_window_s
    for _ in range(2):
        table.clock.ahead_s += window_s + table.contract.grace_s + 1
        table.collect()
    cut = open_cut(lake.catalog, "live", open_table)
    with pytest.raises((VersionGone, OutsideHistoryWindow)) as raised:
        cut["shop.orders"].to_arrow()
    assert "number 1 of cut live can no longer be read in this table: " in str(raised.value)
    assert f"The history window is {window_s} s, and the version window " in str(raised.value)


def test_a_moving_cut_is_dropped_until_it_is_published_again(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """Also if a folder of its tables is gone."""
    publish(lake)
    shutil.rmtree(lake.of[TABLES[0]].uri)
    command = ("cut", "drop", "live", "-c", lake.config())
    assert run([*command, "--dry-run"]) == 0
    assert lake.catalog.cut("live") is not None
    said = "cut live. A flusher with this cut in flusher.cuts publishes it again\n"
    assert capsys.readouterr().out.startswith(f"would drop {said}")
    assert run([*command, "--yes"]) == 0
    assert capsys.readouterr().out == f"dropped {said}"
    assert lake.catalog.cut("live") is None
    assert run([*command, "--yes"]) == 2


def test_cuts_of_a_catalog_behind_rest_are_read_by_its_root(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python and Spark know no root beside the server, which keeps no cuts.  The root itself has no entry of the table."""
    name, empty, config = TABLES[0], tmp_path / "empty", tmp_path / "rest.yaml"
    empty.mkdir()
    shutil.move(lake.of[name].uri, lake.root / f"{name}.lance")
    expected = len(lake.of[name].oracle)
    with RestAdapter("dir", {"root": str(lake.root)}, port=0) as server:
        url = f"http://127.0.0.1:{server.port}"
        config.write_text(yaml.safe_dump({"catalog": {"kind": "rest", "url": url, "root": str(empty)}}))
        assert run(["cut", "make", "june", "--tables", name, "--up-to", "durable", "-c", str(config)]) == 0
        capsys.readouterr()
        assert run(["count", "-t", name, "--at", "cut:june", "-c", str(config)]) == 0
        assert capsys.readouterr().out.split()[0] == str(expected)
        for read in (
            lambda: lancewal.open_catalog(url).cut("june"),
            lambda: pin_read({"catalog": url, "table": name, "at": "cut:june"}),
        ):
            with pytest.raises(CatalogRefused, match=r"In Python and Spark, name that folder as the catalog"):
                read()
    assert lancewal.open_catalog(empty).cut("june")[name].count_rows() == expected
    pinned = pin_read({"catalog": str(empty), "table": name, "at": "cut:june"})
    assert pinned.pinned_plan.options.table == str(lake.root / f"{name}.lance")
