"""Dropped tables in a catalog: their entries, their names, and what is found of them in the folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lance.namespace import RestAdapter

from lancewal_core.catalog.opened import open_directory
from lancewal_core.cli.program import run
from lancewal_core.errors import CatalogRefused, TableDropped
from lancewal_reader.table import open_table
from lancewal_tables.catalog.dropping import contract_of, delete_table, drop_table, undrop_table
from lancewal_tables.catalog.rebuild import Rebuilt, rebuild
from lancewal_tables.catalog.registration import forget_table, register_table
from tests.tables.catalog.test_entries import Lake, agrees, lakes


@pytest.fixture(params=["directory", "rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    yield from lakes(request.param, tmp_path / "of")


@pytest.fixture
def folder(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "of")


def drop(lake: Lake, uri: Path) -> None:
    settings = lake.settings(uri)
    drop_table(settings, lake.catalog, contract_of(settings))


def undrop(lake: Lake, uri: Path) -> str | None:
    return undrop_table(lake.settings(uri), lake.catalog).name_is_at


def active(lake: Lake) -> dict[str, str]:
    return {name: one.uri for name, one in lake.catalog.tables().items() if one.state == "active"}


def test_a_table_goes_and_comes_again_with_its_entry(lake: Lake) -> None:
    uri = lake.inside("shop.orders")
    lake.attach(uri, "shop.orders")
    for _ in range(2):
        for _ in range(2):
            drop(lake, uri)
            assert (active(lake), lake.found()) == ({}, [])
        for _ in range(2):
            assert undrop(lake, uri) is None
            agrees(lake, "shop.orders", uri)


def test_a_name_that_went_to_another_table_stays_there(lake: Lake) -> None:
    uri, other = lake.inside("shop.orders"), lake.inside("other")
    lake.attach(uri, "shop.orders")
    drop(lake, uri)
    if lake.catalog.table("shop.orders") is not None:
        forget_table(lake.catalog, "shop.orders")
    lake.attach(other, "shop.orders")
    assert undrop(lake, uri) == str(other)
    assert active(lake) == {"shop.orders": str(other)}
    drop(lake, uri)
    assert active(lake) == {"shop.orders": str(other)}


def test_a_table_without_a_name_gets_no_entry(lake: Lake) -> None:
    uri = lake.inside("shop.orders")
    lake.attach(uri)
    drop(lake, uri)
    undrop(lake, uri)
    assert lake.catalog.tables() == {}


def test_a_dropped_table_that_is_forgotten_is_no_finding(lake: Lake) -> None:
    uri = lake.inside("shop.orders")
    lake.attach(uri, "shop.orders")
    drop(lake, uri)
    if lake.catalog.table("shop.orders") is not None:
        forget_table(lake.catalog, "shop.orders")
    assert lake.found(mend=True) == []
    assert lake.catalog.tables() == {}


def rebuilt(folder: Lake, tmp_path: Path) -> tuple[Lake, Rebuilt]:
    """A catalog in an empty folder, with what the tables below the other one prove."""
    again = Lake(tmp_path / "again")
    return again, rebuild(again.catalog, folder.settings(), [str(folder.root)])


@pytest.mark.parametrize("place", ["inside", "beside"])
def test_a_dropped_table_is_undropped_by_name_in_a_catalog_made_again(folder: Lake, tmp_path: Path, place: str) -> None:
    uri = folder.inside("shop.orders") if place == "inside" else tmp_path / "beside"
    contract = folder.attach(uri, "shop.orders")
    drop(folder, uri)
    again, done = rebuilt(folder, tmp_path)
    assert (done.tables, done.findings) == (["shop.orders"], [])
    entry = again.catalog.table("shop.orders")
    assert entry is not None
    assert (entry.uri, entry.table_uuid, entry.state) == (str(uri), contract.table_uuid, "dropped")
    undrop(again, uri)
    agrees(again, "shop.orders", uri)


def test_a_table_whose_deletion_has_begun_is_not_rebuilt(folder: Lake, tmp_path: Path) -> None:
    uri = folder.inside("shop.orders")
    folder.attach(uri, "shop.orders")
    drop(folder, uri)
    delete_table(folder.settings(uri), contract_of(folder.settings(uri)))
    again, done = rebuilt(folder, tmp_path)
    assert (again.catalog.tables(), done.tables, done.findings) == ({}, [], [])
    with pytest.raises(TableDropped):
        undrop(again, uri)
    assert again.catalog.tables() == {}


@pytest.mark.parametrize("dropped", ["a", "z"])
def test_a_dropped_table_takes_no_name_from_one_in_use(folder: Lake, tmp_path: Path, dropped: str) -> None:
    gone, used = folder.inside(dropped), folder.inside("m")
    folder.attach(gone, "shop.orders")
    drop(folder, gone)
    forget_table(folder.catalog, "shop.orders")
    folder.attach(used, "shop.orders")
    again, done = rebuilt(folder, tmp_path)
    assert (active(again), done.tables, done.findings) == ({"shop.orders": str(used)}, ["shop.orders"], [])
    shutil.move(used, tmp_path / "elsewhere")
    assert rebuild(folder.catalog, folder.settings(), [str(folder.root)]).findings == []


def test_a_catalog_behind_rest_is_rebuilt(tmp_path: Path) -> None:
    """It keeps no dropped table, and is told of none as written."""
    of = Lake(tmp_path / "of")
    for name in ("shop.orders", "shop.gone"):
        of.attach(of.inside(name), name)
    drop(of, of.inside("shop.gone"))
    for lake in lakes("rest", tmp_path):
        for written in (["shop.orders"], []):
            done = rebuild(lake.catalog, lake.settings(), [str(of.root)])
            assert (done.tables, done.findings) == (written, [])
            assert active(lake) == {"shop.orders": str(of.inside("shop.orders"))}
    assert open_directory(str(of.root)).tables().keys() == {"shop.orders", "shop.gone"}


@pytest.fixture
def by_folders(tmp_path: Path) -> Iterator[Lake]:
    """A catalog behind a server that names the folders of its root by itself, as pylance's does by default."""
    (tmp_path / "lake").mkdir()
    with RestAdapter("dir", {"root": str(tmp_path / "lake")}, port=0) as server:
        yield Lake(tmp_path / "lake", f"http://127.0.0.1:{server.port}")


def test_a_server_that_keeps_a_name_does_not_undo_a_drop(by_folders: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """The contract counts.  The command says that the name stays, and ends well."""
    lake = by_folders
    lake.attach(lake.inside("shop.orders"), "shop.orders")
    config = lake.folder.parent / "lancewal.yaml"
    of = lake.settings().catalog
    config.write_text(yaml.safe_dump({"catalog": {"kind": "rest", "url": of.url, "root": str(lake.root)}}))
    capsys.readouterr()
    assert run(["table", "drop", "-t", "shop.orders", "-c", str(config)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"dropped shop.orders at {lake.inside('shop.orders')}: ")
    assert "warning: the table is dropped, and the catalog still names it: the catalog http://" in said.err
    assert (
        "The entry was not changed. Perhaps the server itself chooses the folders of tables in its root. Switch that off"
        in said.err
    )
    assert run(["table", "undrop", "-t", "shop.orders", "-c", str(config)]) == 0
    assert open_table(lake.inside("shop.orders")).count_rows() == 3


def test_a_name_that_a_server_takes_and_does_not_show_is_not_called_registered(by_folders: Lake) -> None:
    lake = by_folders
    lake.attach(lake.inside("shop.orders"))
    with pytest.raises(
        CatalogRefused, match=r"took the entry of crm\.x, and does not show it\. .*folder crm\.x\.lance"
    ):
        register_table(lake.catalog, lake.settings(lake.inside("shop.orders")), "crm.x")
    lake.register("shop.orders", lake.inside("shop.orders"))
    assert lake.found() == []
