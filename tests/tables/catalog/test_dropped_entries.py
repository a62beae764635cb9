"""Dropped tables in a catalog: their entries, their names, and what is found of them in the folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.catalog.opened import open_directory
from lancewal_core.errors import TableDropped
from lancewal_tables.catalog.dropping import contract_of, delete_table, drop_table, undrop_table
from lancewal_tables.catalog.rebuild import Rebuilt, rebuild
from lancewal_tables.catalog.registration import forget_table
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
