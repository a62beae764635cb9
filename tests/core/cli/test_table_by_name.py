"""A command, and a service, is given its table by name: the settings that it gets have the address."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from lancewal_core.catalog.opened import open_directory
from lancewal_core.cli.config import show
from lancewal_core.cli.options import TableAsked, read_settings
from lancewal_core.errors import InvalidSettings, TableUnknown
from tests.support.catalog_entries import entry

TERMS = {"uri": "shop.orders", "primary_key": ["id"]}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog, and an empty folder in which the process works."""
    monkeypatch.chdir(tmp_path)
    lake = tmp_path / "lake"
    (lake / "shop.orders.lance").mkdir(parents=True)
    catalog = open_directory(str(lake))
    for one in (
        entry("shop.orders", f"{lake}/shop.orders.lance"),
        entry("items", "s3://elsewhere/items"),
        entry("gone", "s3://elsewhere/gone", state="dropped"),
    ):
        assert catalog.swap_table(one.name, None, one)
    return lake


def config(lake: Path | None, **table: object) -> Path:
    tree = {"table": {**TERMS, **table}, **({"catalog": {"root": str(lake)}} if lake else {})}
    file = Path("lancewal.yaml")
    file.write_text(yaml.safe_dump(tree))
    return file


def test_a_name_in_the_settings_stands_for_the_address(lake: Path) -> None:
    table = read_settings(config(lake)).table
    assert (table.uri, table.primary_key) == (f"{lake}/shop.orders.lance", ("id",))


def test_a_name_on_the_command_line_stands_for_the_address(lake: Path) -> None:
    table = read_settings(config(lake), "items").table
    assert (table.uri, table.primary_key) == ("s3://elsewhere/items", ())


@pytest.mark.parametrize("configured", ["shop.orders", "ADDRESS"])
@pytest.mark.parametrize("named", ["shop.orders", "ADDRESS"])
def test_name_and_address_are_one_table(lake: Path, configured: str, named: str) -> None:
    texts = {"ADDRESS": f"{lake}/shop.orders.lance"}
    table = read_settings(config(lake, uri=texts.get(configured, configured)), texts.get(named, named)).table
    # An address asks no catalog, which could tell that the configured name is the same table.
    terms = () if (configured, named) == ("shop.orders", "ADDRESS") else ("id",)
    assert (table.uri, table.primary_key) == (f"{lake}/shop.orders.lance", terms)


@pytest.mark.parametrize(
    "catalog", [{"root": "/nowhere"}, {"kind": "postgres", "url": "postgresql://127.0.0.1:1/lake"}]
)
def test_an_address_is_read_though_the_catalog_of_the_configured_name_is_gone(
    lake: Path, catalog: Mapping[str, str]
) -> None:
    Path("gone.yaml").write_text(yaml.safe_dump({"table": {"uri": "shop.orders"}, "catalog": dict(catalog)}))
    address = f"{lake}/shop.orders.lance"
    assert read_settings(Path("gone.yaml"), address).table.uri == address


def test_a_configured_name_that_is_unknown_matters_only_where_it_is_used(lake: Path) -> None:
    file = config(lake, uri="bills")
    assert read_settings(file, "items").table.uri == "s3://elsewhere/items"
    with pytest.raises(TableUnknown, match=r"bills is neither a table of the catalog .* nor a folder here"):
        read_settings(file)


def test_a_folder_here_is_an_address_unless_the_catalog_has_its_name(lake: Path) -> None:
    for folder in ("bills", "items"):
        Path(folder).mkdir()
    file = config(lake)
    assert read_settings(file, "bills").table.uri == "bills"
    assert read_settings(file, "items").table.uri == "s3://elsewhere/items"
    assert read_settings(file, "./items").table.uri == "./items"


@pytest.mark.parametrize("text", ["bills", "no name!", "a..b"])
def test_a_text_that_names_nothing_is_an_error(lake: Path, text: str) -> None:
    with pytest.raises(TableUnknown, match="neither a table of the catalog") as refused:
        read_settings(config(lake), text)
    assert str(lake) in str(refused.value)


def test_a_table_that_was_dropped_is_refused_by_name(lake: Path) -> None:
    Path("gone").mkdir()
    with pytest.raises(TableUnknown, match=r"the table gone of the catalog .* was dropped"):
        read_settings(config(lake), "gone")


@pytest.mark.parametrize("configured", [True, False])
def test_a_command_may_find_a_table_that_was_dropped(lake: Path, configured: bool) -> None:
    Path("gone").mkdir()
    file = config(lake, uri="gone" if configured else "shop.orders", base_paths="allow")
    settings, catalog = TableAsked("" if configured else "gone", file).settings_and_catalog()
    assert (settings.table.uri, settings.table.base_paths) == ("s3://elsewhere/gone", "allow")
    assert catalog is not None
    assert catalog.where == str(lake)
    assert TableAsked("items", file).settings_and_catalog()[0].table.uri == "s3://elsewhere/items"
    with pytest.raises(TableUnknown, match="neither a table of the catalog"):
        TableAsked("bills", file).settings_and_catalog()


def test_an_address_asks_no_catalog(lake: Path) -> None:
    file = config(lake / "nowhere", uri="s3://lake/t")
    assert read_settings(file).table.uri == "s3://lake/t"
    assert read_settings(file, "s3://lake/other").table.uri == "s3://lake/other"
    with pytest.raises(InvalidSettings, match="there is no catalog at"):
        read_settings(file, "items")


def test_the_settings_are_shown_without_a_catalog(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(config(lake / "nowhere"))
    assert yaml.safe_load(capsys.readouterr().out)["table"]["uri"] == "shop.orders"


def test_without_a_catalog_each_text_is_an_address(lake: Path) -> None:
    file = config(None)
    assert read_settings(file).table.uri == "shop.orders"
    assert read_settings(file, "items").table.uri == "items"
