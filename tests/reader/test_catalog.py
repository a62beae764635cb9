"""Tables by name in Python, on a table of real services' objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import lancewal
from lancewal_core.catalog.catalog import change_table
from lancewal_core.catalog.opened import open_directory
from lancewal_core.errors import InvalidInput, InvalidSettings, TableUnknown
from lancewal_reader.spark.options import parse_options
from lancewal_reader.spark.source import pin_read
from tests.support.catalog_entries import entry
from tests.support.pipeline import SMALL, Pipeline, by_key


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, SMALL, partitions=2, seed=3)
    made.produce(40)
    made.merge_all()
    made.produce(20)
    made.ingest()
    catalog = open_directory(str(tmp_path))
    for one in (entry("shop.orders", made.uri), entry("gone", made.uri, state="dropped")):
        change_table(catalog, one.name, lambda _, one=one: one)  # type: ignore[misc] # bound now
    yield made
    made.close()


def test_a_table_is_read_by_its_name(made: Pipeline, tmp_path: Path) -> None:
    for address in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        catalog = lancewal.open_catalog(address)
        table = catalog["shop.orders"]
        assert (table.uri, by_key(table.to_arrow())) == (made.uri, made.oracle)
    catalog = lancewal.open_catalog(tmp_path)
    assert {name: found.state for name, found in catalog.tables().items()} == {
        "gone": "dropped",
        "shop.orders": "active",
    }


def test_what_names_no_table_is_refused(made: Pipeline, tmp_path: Path) -> None:
    catalog = lancewal.open_catalog(tmp_path)
    with pytest.raises(TableUnknown, match=r"has no table shop\.items"):
        catalog["shop.items"]
    with pytest.raises(TableUnknown, match=r"the table gone of the catalog .* was dropped"):
        catalog["gone"]
    for wrong in (made.uri, "", 0, None):
        with pytest.raises(InvalidInput, match="not the name of a table"):
            catalog[wrong]  # type: ignore[index] # as a program without types may
    with pytest.raises(InvalidSettings, match="no catalog at"):
        lancewal.open_catalog(tmp_path / "nowhere")
    with pytest.raises(InvalidSettings) as secret:
        lancewal.open_catalog("s3://KEY:SECRET@lake")
    assert "SECRET" not in str(secret.value)
    for nothing in ("", None, 3):
        with pytest.raises(InvalidInput, match="expected its address"):
            lancewal.open_catalog(nothing)  # type: ignore[arg-type] # as a program without types may


def test_a_server_gets_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr("lancewal_core.catalog.opened.open_postgres", lambda url, password: given.append(password))
    lancewal.open_catalog("postgresql://127.0.0.1/lake", password="one")
    monkeypatch.setenv("LANCEWAL_CATALOG__PASSWORD", "two")
    with suppress(AttributeError):  # what opened is no catalog
        parse_options({"catalog": "postgresql://127.0.0.1/lake", "table": "shop.orders"})
    assert given == ["one", "two"]


def test_spark_gets_the_address_of_a_name(made: Pipeline, tmp_path: Path) -> None:
    catalog = str(tmp_path)
    assert parse_options({"catalog": catalog, "table": "shop.orders"}).table == made.uri
    assert parse_options({"catalog": catalog, "path": made.uri}).table == made.uri
    assert parse_options({"table": "shop.orders"}).table == "shop.orders"  # a folder, where no catalog is named
    assert pin_read({"catalog": catalog, "path": "shop.orders"}).receipt == lancewal.open_table(made.uri).receipt()
    with pytest.raises(TableUnknown, match=r"shop\.items is neither a table of the catalog"):
        parse_options({"catalog": catalog, "table": "shop.items"})
