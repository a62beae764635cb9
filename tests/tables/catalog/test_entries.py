"""Entries of a catalog, and the tables that they name: made, registered, moved, forgotten, compared."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import lance
import pytest
import yaml
from lance.namespace import DirectoryNamespace, RestAdapter
from lance_namespace import ListTablesRequest

from lancewal_core.catalog.catalog import StoredCatalog, change_table
from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.opened import open_directory, set_catalog
from lancewal_core.cli.options import read_settings
from lancewal_core.cli.program import run
from lancewal_core.errors import InvalidInput, InvalidSettings, LancewalError, TableExists, TableUnknown
from lancewal_core.open import Address
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import CatalogSettings
from lancewal_core.store.address import place_of, whole_address
from lancewal_core.table.contract import Contract
from lancewal_flusher.catalog.below import tables_below
from lancewal_flusher.catalog.check import check_catalog
from lancewal_kafka.topic import TopicInspector
from lancewal_reader.catalog import open_catalog
from lancewal_reader.table import open_table
from lancewal_tables.catalog import making, registration
from lancewal_tables.catalog.making import make_named
from lancewal_tables.catalog.overview import TableLine, overview, worst_first
from lancewal_tables.catalog.registration import forget_table, register_table
from lancewal_tables.catalog.root import make_root
from lancewal_tables.commands.contract_text import contract_text
from lancewal_tables.define.attach import attach_table
from lancewal_tables.define.create import create_table
from tests.flusher.table_settings import COLUMNS
from tests.support.store_addresses import REAL, at_real_server
from tests.tables.define.test_copies import ROWS, Crash, NoBroker, settings_of


class Lake:
    """A catalog in a folder, with tables that lie in it or beside it.  ``url``: it is behind REST, and all lie in its root."""

    def __init__(self, folder: Path, url: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.root = folder if url else folder / "lake"
        self._of = CatalogSettings(kind="rest" if url else "directory", root=str(self.root), url=url)
        self.catalog: StoredCatalog = make_root(self.settings())

    def settings(self, uri: Path | str = "") -> Settings:
        settings = settings_of(Path(uri) if uri else self.folder / "none")
        table = settings.table.model_copy(update={"uri": str(uri)})
        return settings.model_copy(update={"table": table, "catalog": self._of})

    def inside(self, name: str) -> Path:
        return self.root / f"{name}.lance"

    def attach(self, uri: Path, name: str | None = None, *, look_only: bool = False) -> Contract:
        """An attached table; with a name as ``lancewal table attach --name`` does it."""
        if not uri.exists():
            lance.write_dataset(ROWS, str(uri))
        make = partial(attach_table, inspector=cast("TopicInspector", NoBroker()))
        settings = self.settings(uri)
        if name is None:
            return make(settings)
        return make_named(make, settings, name, lambda text: None, look_only=look_only)

    def register(self, name: str, uri: Path) -> tuple[str | None, str | None]:
        done = register_table(self.catalog, self.settings(uri), name)
        found = self.catalog.table(name)
        assert found is not None
        assert (found.name, found.uri, self.told(done.entry)) == (name, done.entry.uri, self.told(found))
        return done.moved_from, done.former_uuid

    def told(self, facts: TableEntry | Contract) -> tuple[str | None, str]:
        """Uuid and topic, as far as the catalog tells them."""
        return (None, "") if self._of.kind == "rest" else (facts.table_uuid, facts.topic)

    def contract(self, uri: Path) -> Contract:
        return Address(str(uri)).contract()

    def found(self, *, mend: bool = False) -> list[tuple[str, str, bool]]:
        findings = check_catalog(self.catalog, self.settings(), mend=mend)
        return [(one.name, one.kind, one.mended) for one in findings]

    def change(self, name: str, **terms: object) -> None:
        def decide(found: TableEntry | None) -> TableEntry:
            assert found is not None
            return TableEntry.model_validate({**found.model_dump(), **terms, "write_id": "by-hand"})

        change_table(self.catalog, name, decide)


def lakes(kind: str, folder: Path) -> Iterator[Lake]:
    if kind == "directory":
        yield Lake(folder)
        return
    folder.mkdir(exist_ok=True)
    with RestAdapter("dir", {"root": str(folder), "dir_listing_enabled": "false"}, port=0) as server:
        yield Lake(folder, f"http://127.0.0.1:{server.port}")


@pytest.fixture(params=["directory", "rest"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    yield from lakes(request.param, tmp_path)


in_folder = pytest.mark.parametrize("lake", ["directory"], indirect=True)
"""A test of what a catalog tells beside names and addresses, or of a root that is a catalog."""


def agrees(lake: Lake, name: str, uri: Path) -> None:
    entry, contract = lake.catalog.table(name), lake.contract(uri)
    assert entry is not None
    assert (entry.uri, (entry.table_uuid, entry.topic)) == (str(uri), lake.told(contract))
    assert contract.name == name
    assert lake.found() == []


# -- tables that are made by name ------------------------------------------------------------------------------


def test_a_table_that_is_made_by_name_has_an_entry(lake: Lake) -> None:
    contract = lake.attach(lake.inside("shop.orders"), "shop.orders")
    assert (contract.name, contract.version, contract.format) == ("shop.orders", 1, 2)
    agrees(lake, "shop.orders", lake.inside("shop.orders"))
    assert "shop.orders" in contract_text(contract)


def test_a_dry_run_makes_nothing(lake: Lake) -> None:
    assert lake.attach(lake.inside("shop.orders"), "shop.orders", look_only=True).name == "shop.orders"
    assert lake.catalog.tables() == {}


def test_a_table_that_is_killed_before_its_entry_is_finished_by_the_same_command(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(making, "put_entry", crash)
        with pytest.raises(Crash):
            lake.attach(lake.inside("shop.orders"), "shop.orders")
    assert lake.catalog.tables() == {}
    before = lake.contract(lake.inside("shop.orders"))
    assert lake.attach(lake.inside("shop.orders"), "shop.orders") == before
    agrees(lake, "shop.orders", lake.inside("shop.orders"))
    with pytest.raises(TableExists, match="already a lancewal table"):
        lake.attach(lake.inside("shop.orders"), "shop.orders")


def crash(*_: object) -> None:
    raise Crash


def test_a_table_that_is_killed_before_its_entry_is_found_by_check(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(making, "put_entry", crash)
        with pytest.raises(Crash):
            lake.attach(lake.inside("shop.orders"), "shop.orders")
    assert lake.found(mend=True) == [("shop.orders", "no-entry", True)]
    agrees(lake, "shop.orders", lake.inside("shop.orders"))


def test_a_name_that_is_taken_makes_nothing(lake: Lake, tmp_path: Path) -> None:
    lake.attach(lake.inside("shop.orders"), "shop.orders")
    with pytest.raises(TableExists, match=r"shop\.orders is the table at .*lancewal catalog forget shop\.orders"):
        lake.attach(tmp_path / "other", "shop.orders")
    with pytest.raises(LancewalError, match="no lancewal contract"):
        lake.contract(tmp_path / "other")


def test_a_table_of_another_name_is_not_taken_over(lake: Lake, tmp_path: Path) -> None:
    lake.attach(tmp_path / "plain")
    lake.attach(tmp_path / "other", "other")
    for uri in (tmp_path / "plain", tmp_path / "other"):
        with pytest.raises(TableExists, match="already a lancewal table"):
            lake.attach(uri, "shop.orders")
    assert list(lake.catalog.tables()) == ["other"]


def test_where_a_table_of_a_new_name_lies(lake: Lake, tmp_path: Path) -> None:
    def uri(table: str = "", configured: str = "") -> str:
        file = tmp_path / "lancewal.yaml"
        file.write_text(f"catalog: {{root: {lake.root}}}\ntable: {{uri: '{configured}'}}\n")
        return read_settings(file, table, name="shop.orders").table.uri

    assert uri() == uri(configured="shop.orders") == str(lake.inside("shop.orders"))
    assert uri(configured="/lake/a") == "/lake/a"
    assert uri("/lake/b", "/lake/a") == "/lake/b"
    with pytest.raises(InvalidInput, match=r"not the name of a table"):
        read_settings(tmp_path / "lancewal.yaml", name="shop/orders", defining=True)
    (tmp_path / "lancewal.yaml").write_text("table: {}\n")
    with pytest.raises(InvalidInput, match=r"'shop\.orders' needs a catalog: set catalog\.root"):
        read_settings(tmp_path / "lancewal.yaml", name="shop.orders")


# -- tables that are registered --------------------------------------------------------------------------------


def test_a_registered_table_keeps_all_but_its_name(lake: Lake, tmp_path: Path) -> None:
    before = lake.attach(tmp_path / "orders")
    assert lake.register("shop.orders", tmp_path / "orders") == (None, None)
    agrees(lake, "shop.orders", tmp_path / "orders")
    after = lake.contract(tmp_path / "orders")
    assert after == before.model_copy(update={"version": 2, "format": 2, "name": "shop.orders"})
    assert lake.register("shop.orders", tmp_path / "orders") == (None, None)
    assert lake.contract(tmp_path / "orders") == after


@pytest.mark.parametrize("known", [True, False])
def test_a_moved_table_is_one_of_its_own_afterwards(lake: Lake, tmp_path: Path, known: bool) -> None:
    before = lake.attach(tmp_path / "orders", "shop.orders" if known else None)
    shutil.move(tmp_path / "orders", tmp_path / "moved")
    if known:
        assert lake.found() == [("shop.orders", "table-missing", False)]
    assert lake.register("shop.orders", tmp_path / "moved") == (str(tmp_path / "orders"), before.table_uuid)
    agrees(lake, "shop.orders", tmp_path / "moved")
    assert lake.contract(tmp_path / "moved").table_uuid != before.table_uuid
    assert open_table(tmp_path / "moved").to_arrow().to_pylist() == ROWS.to_pylist()
    assert lake.register("shop.orders", tmp_path / "moved") == (None, None)


def test_a_name_does_not_go_over_to_a_copy_while_the_original_is_there(lake: Lake, tmp_path: Path) -> None:
    original = lake.attach(tmp_path / "orders", "shop.orders")
    shutil.copytree(tmp_path / "orders", tmp_path / "copy")
    with pytest.raises(TableExists, match="choose another name"):
        lake.register("shop.orders", tmp_path / "copy")
    assert lake.contract(tmp_path / "copy").table_uuid == original.table_uuid  # nothing was changed
    assert lake.register("copy", tmp_path / "copy") == (str(tmp_path / "orders"), original.table_uuid)
    agrees(lake, "copy", tmp_path / "copy")
    agrees(lake, "shop.orders", tmp_path / "orders")


@pytest.mark.parametrize("mount", ["disk", "disk/orders"])
def test_a_copy_does_not_take_the_name_while_the_disk_of_the_original_is_not_mounted(
    lake: Lake, tmp_path: Path, mount: str
) -> None:
    original = tmp_path / "disk" / "orders"
    original.parent.mkdir()
    lake.attach(original, "shop.orders")
    shutil.copytree(original, tmp_path / "copy")
    shutil.move(tmp_path / mount, tmp_path / "unmounted")
    (tmp_path / mount).mkdir()
    before = lake.contract(tmp_path / "copy")
    with pytest.raises(TableExists, match=r"mount the disk\. .*lancewal catalog forget shop\.orders"):
        lake.register("shop.orders", tmp_path / "copy")
    assert lake.contract(tmp_path / "copy") == before
    (tmp_path / mount).rmdir()
    shutil.move(tmp_path / "unmounted", tmp_path / mount)
    agrees(lake, "shop.orders", original)
    shutil.rmtree(tmp_path / "disk")
    lake.register("shop.orders", tmp_path / "copy")
    agrees(lake, "shop.orders", tmp_path / "copy")


@in_folder
def test_the_folder_of_a_table_is_no_root(lake: Lake, tmp_path: Path) -> None:
    lake.attach(tmp_path / "orders", "shop.orders")
    lance.write_dataset(ROWS, str(tmp_path / "foreign"))
    for table in ("orders", "foreign"):
        root = CatalogSettings(kind="directory", root=str(tmp_path / table))
        before = sorted((tmp_path / table).rglob("*"))
        with pytest.raises(InvalidSettings, match="the folder of a table"):
            make_root(lake.settings().model_copy(update={"catalog": root}))
        assert sorted((tmp_path / table).rglob("*")) == before
    assert make_root(lake.settings()).tables().keys() == {"shop.orders"}


def test_a_registration_that_is_killed_is_repeated(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.attach(tmp_path / "orders", "shop.orders")
    shutil.move(tmp_path / "orders", tmp_path / "moved")
    for step in ("give_name", "put_entry"):
        with monkeypatch.context() as patch:
            patch.setattr(f"lancewal_tables.catalog.registration.{step}", crash)
            with pytest.raises(Crash):
                lake.register("shop.orders", tmp_path / "moved")
    lake.register("shop.orders", tmp_path / "moved")
    agrees(lake, "shop.orders", tmp_path / "moved")


def test_a_table_has_one_name(lake: Lake, tmp_path: Path) -> None:
    lake.attach(tmp_path / "orders", "shop.orders")
    with pytest.raises(
        TableExists, match=r"has the name shop\.orders in the catalog .*lancewal catalog forget shop\.orders"
    ):
        lake.register("crm.orders", tmp_path / "orders")
    assert forget_table(lake.catalog, "shop.orders").uri == str(tmp_path / "orders")
    assert open_table(tmp_path / "orders").count_rows() == 3
    lake.register("crm.orders", tmp_path / "orders")
    agrees(lake, "crm.orders", tmp_path / "orders")
    with pytest.raises(TableUnknown):
        forget_table(lake.catalog, "shop.orders")


def test_a_table_of_a_kept_cut_is_forgotten_only_if_the_cut_is_named(lake: Lake, tmp_path: Path) -> None:
    uuid = lake.attach(tmp_path / "orders", "shop.orders").table_uuid
    held = CutTable(uri=str(tmp_path / "orders"), table_uuid=uuid, receipt="lw1.x", snapshot="june-1")
    for name, moving in (("june", False), ("live", True)):
        cut = Cut(
            name=name, moving=moving, tables={"shop.orders": held}, asked_ms=1, took_ms=1, made_ms=1, write_id=name
        )
        assert lake.catalog.swap_cut(name, None, cut)
    with pytest.raises(InvalidInput, match=r"the table shop\.orders is in kept cuts, .*: june\. .*--cut june"):
        forget_table(lake.catalog, "shop.orders")
    with pytest.raises(InvalidInput, match="--cut live: there is no kept cut of this name"):
        forget_table(lake.catalog, "shop.orders", ["june", "live"])
    assert lake.catalog.table("shop.orders") is not None
    forget_table(lake.catalog, "shop.orders", ["june"])
    assert lake.catalog.table("shop.orders") is None


@in_folder
def test_a_kept_cut_binds_the_table_and_not_the_name_that_the_table_had(lake: Lake, tmp_path: Path) -> None:
    """The table of the cut gets another name, and another table gets its former one."""
    table, other = tmp_path / "orders", tmp_path / "other"
    uuid = lake.attach(table, "shop.orders").table_uuid
    held = CutTable(uri=str(table), table_uuid=uuid, receipt="lw1.x", snapshot="june-1")
    cut = Cut(
        name="june", moving=False, tables={"shop.orders": held}, asked_ms=1, took_ms=1, made_ms=1, write_id="june"
    )
    assert lake.catalog.swap_cut("june", None, cut)
    forget_table(lake.catalog, "shop.orders", ["june"])
    lake.register("shop.again", table)
    lake.attach(other, "shop.orders")
    with pytest.raises(InvalidInput, match=r"the table shop\.again is in kept cuts, .*: june\. "):
        forget_table(lake.catalog, "shop.again")
    with pytest.raises(InvalidInput, match="--cut june: there is no kept cut of this name that has the table"):
        forget_table(lake.catalog, "shop.orders", ["june"])
    forget_table(lake.catalog, "shop.orders")
    assert list(lake.catalog.tables()) == ["shop.again"]


@in_folder
def test_the_name_of_a_dropped_table_is_free_once_it_is_forgotten(lake: Lake, tmp_path: Path) -> None:
    lake.attach(tmp_path / "orders", "shop.orders")
    lake.change("shop.orders", state="dropped")
    for folder in ("orders", "other"):
        with pytest.raises(TableExists, match="was dropped"):
            lake.attach(tmp_path / folder, "shop.orders")
    assert lake.found() == []
    forget_table(lake.catalog, "shop.orders")
    lake.attach(tmp_path / "other", "shop.orders")
    agrees(lake, "shop.orders", tmp_path / "other")


# -- check -----------------------------------------------------------------------------------------------------


@in_folder
def test_check_finds_and_mends_what_folders_prove(lake: Lake, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "e"):
        lake.attach(lake.inside(name), name)
    lake.attach(lake.inside("f"))
    lance.write_dataset(ROWS, str(lake.inside("plain")))
    lake.change("a", table_uuid="another")
    lake.change("b", topic="another")
    forget_table(lake.catalog, "c")
    shutil.rmtree(lake.inside("d"))
    shutil.move(lake.inside("e"), tmp_path / "elsewhere")
    lake.change("e", uri=str(tmp_path / "elsewhere"))
    damaged = lake.attach(tmp_path / "g", "g")
    (contract,) = (tmp_path / "g" / "_lancewal" / "contract").glob("*.json")
    contract.write_bytes(b"{}")
    expected = {
        "a": "other-uuid",
        "b": "other-topic",
        "c": "no-entry",
        "d": "table-missing",
        "e": "other-place",
        "f": "no-entry",
        "g": "unreadable",
    }
    assert lake.found() == [(name, kind, False) for name, kind in expected.items()]
    mended = {"a", "b", "c", "f"}
    assert lake.found(mend=True) == [(name, kind, name in mended) for name, kind in expected.items()]
    assert lake.found() == [(name, kind, False) for name, kind in expected.items() if name not in mended]
    for name in ("a", "b", "c"):
        entry, written = lake.catalog.table(name), lake.contract(lake.inside(name))
        assert entry is not None
        assert (entry.table_uuid, entry.topic) == (written.table_uuid, written.topic)
    assert damaged.name == "g"


@in_folder
def test_check_names_what_a_person_decides(lake: Lake, tmp_path: Path) -> None:
    lake.attach(tmp_path / "orders", "shop.orders")
    lake.attach(tmp_path / "twin", "twin")
    lake.change("twin", uri=str(tmp_path / "orders"))
    lake.attach(lake.inside("items"), "items")
    forget_table(lake.catalog, "items")
    lake.attach(tmp_path / "items", "items")  # another table under the name of one that lies in the root
    assert lake.found(mend=True) == [("items", "no-entry", False), ("twin", "other-name", False)]


def test_a_copy_in_the_root_gets_no_entry_by_itself(lake: Lake, tmp_path: Path) -> None:
    """Its contract is that of another table, until a command makes it one of its own."""
    lake.attach(tmp_path / "orders")
    shutil.copytree(tmp_path / "orders", lake.inside("copy"))
    assert lake.found(mend=True) == [("copy", "no-entry", False)]
    assert lake.catalog.tables() == {}
    lake.register("copy", lake.inside("copy"))
    agrees(lake, "copy", lake.inside("copy"))


# -- what else reads the root ----------------------------------------------------------------------------------


@in_folder
def test_lance_lists_and_opens_the_tables_of_the_root(lake: Lake) -> None:
    for name in ("shop.orders", "shop.items"):
        lake.attach(lake.inside(name), name)
    namespace = DirectoryNamespace(root=str(lake.root))  # type: ignore[no-untyped-call]
    assert sorted(namespace.list_tables(ListTablesRequest(id=[])).tables) == ["shop.items", "shop.orders"]
    opened = lance.dataset(namespace_client=namespace, table_id=["shop.orders"])
    assert opened.to_table().to_pylist() == ROWS.to_pylist()
    assert tables_below(str(lake.root), lake.settings()) == {
        name: str(lake.inside(name)) for name in ("shop.items", "shop.orders")
    }


@pytest.mark.parametrize("kind", REAL)  # s3, azure, gcs
def test_a_catalog_in_a_bucket(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """One table is made by its name, and one of plain Lance is attached.  Lance's own clients list and open both."""
    root, options = at_real_server(request, kind, "names", "lake")
    terms = settings_of(tmp_path).table.model_dump(mode="json", include={"topic", "primary_key", "region_key"})
    config = tmp_path / "lancewal.yaml"

    def settings(**table: object) -> Settings:
        tree = {
            "table": {**terms, **table}, "catalog": {"root": root}, "kafka": {"bootstrap_servers": "127.0.0.1:1"},
            "storage": {"options": options},
        }  # fmt: skip
        config.write_text(yaml.safe_dump(tree))
        return read_settings(config, find="none")

    assert make_root(settings()).tables() == {}
    broker = cast("TopicInspector", NoBroker())
    items, orders = (f"{root}/{name}.lance" for name in ("shop.items", "shop.orders"))
    lance.write_dataset(ROWS, orders, storage_options=options)
    for uri, name, columns, make in (
        (items, "shop.items", COLUMNS, create_table),
        (orders, "shop.orders", {}, attach_table),
    ):
        one = settings(uri=uri, columns=columns)
        make_named(partial(make, inspector=broker), one, name, lambda text: None)
    assert {name: place_of(found.uri) for name, found in open_directory(root, options).tables().items()} == {
        "shop.items": place_of(whole_address(items, options)),
        "shop.orders": place_of(whole_address(orders, options)),
    }
    assert tables_below(root, settings()) == {"shop.items": items, "shop.orders": orders}
    namespace = DirectoryNamespace(root=root, **{f"storage.{name}": value for name, value in options.items()})  # type: ignore[no-untyped-call]
    assert sorted(namespace.list_tables(ListTablesRequest(id=[])).tables) == ["shop.items", "shop.orders"]
    for name, rows in (("shop.items", []), ("shop.orders", ROWS.to_pylist())):
        plain = lance.dataset(namespace_client=namespace, table_id=[name], storage_options=options)
        assert plain.to_table().to_pylist() == rows
        assert open_catalog(root, storage_options=options)[name].to_arrow().to_pylist() == rows


# -- list ------------------------------------------------------------------------------------------------------


@in_folder
def test_the_list_has_each_table_and_the_error_of_one_that_cannot_be_opened(lake: Lake, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        lake.attach(lake.inside(name), name)
    shutil.rmtree(lake.inside("b"))
    lake.change("c", state="dropped")
    quiet = lake.settings().model_copy(update={"kafka": type(lake.settings().kafka)()})
    first, second, third = overview(set_catalog(quiet), quiet)
    assert (first.name, first.rows, first.version, first.lag, first.error) == ("a", 3, first.version, None, None)
    assert (second.state, second.rows) == ("error", None)
    assert second.error is not None
    assert "table_missing" in second.error
    assert (third.state, third.error) == ("dropped", None)


def test_the_worst_come_first() -> None:
    def line(name: str, lag: int | None = None, state: str = "moving", error: str | None = None) -> TableLine:
        return TableLine(name, "u", state, 1, 1, lag, error)

    lines = [line("gone", 9, "dropped"), line("few", 1), line("none"), line("many", 7), line("bad", error="e")]
    assert [one.name for one in worst_first(lines)] == ["bad", "none", "many", "few", "gone"]


def test_an_entry_that_changed_meanwhile_is_not_forgotten(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("orders", "other"):
        lake.attach(tmp_path / folder)
    lake.register("shop.orders", tmp_path / "orders")

    def checked(catalog: StoredCatalog, name: str, *of: object) -> None:
        change_table(catalog, name, lambda found: None)
        lake.register(name, tmp_path / "other")

    with monkeypatch.context() as patch:
        patch.setattr(registration, "check_cuts", checked)
        with pytest.raises(
            InvalidInput, match=r"changed the entry of shop\.orders, which names .*/other now\. Nothing"
        ):
            forget_table(lake.catalog, "shop.orders")
        agrees(lake, "shop.orders", tmp_path / "other")
        patch.setattr(
            registration, "check_cuts", lambda catalog, name, *of: change_table(catalog, name, lambda _: None)
        )
        forget_table(lake.catalog, "shop.orders")
    assert lake.catalog.tables() == {}


def test_facts_that_the_catalog_does_not_tell_are_shown_as_such(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contract = lake.attach(lake.inside("shop.orders"), "shop.orders")
    config = tmp_path / "lancewal.yaml"
    config.write_text(yaml.safe_dump({"catalog": lake.settings().catalog.model_dump()}))
    assert run(["catalog", "show", "shop.orders", "-c", str(config)]) == 0
    shown = dict(line.split() for line in capsys.readouterr().out.splitlines())
    uuid, topic = lake.told(contract)
    assert (shown["address"], shown["table"], shown["topic"]) == (
        str(lake.inside("shop.orders")), uuid or "-", topic or "-",
    )  # fmt: skip
    assert (shown["written"] == "-") is (uuid is None)
