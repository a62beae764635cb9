"""The catalog behind REST, at pylance's server: what it does beside the laws that all catalogs keep."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.namespace import RestAdapter
from lance_namespace import DescribeTableResponse, ListTablesResponse
from lance_namespace_urllib3_client.api.table_api import TableApi

from lancewal_core.catalog import rest_catalog
from lancewal_core.catalog.catalog import change_table
from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.opened import catalog_of, open_rest
from lancewal_core.catalog.rest_catalog import RestCatalog
from lancewal_core.catalog.table_name import default_uri
from lancewal_core.errors import CatalogRefused, CatalogUnavailable, InvalidSettings
from lancewal_core.settings.load import load_settings
from tests.support import catalog_entries

Client = Callable[[], RestCatalog]
_ids = count(1)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
def client(root: str) -> Iterator[Client]:
    with RestAdapter("dir", {"root": root, "dir_listing_enabled": "false"}, port=0) as server:
        yield lambda: open_rest(f"http://127.0.0.1:{server.port}", root=root)


def entry(root: str, name: str = "shop.orders") -> TableEntry:
    """Return an entry with an address of its own."""
    return catalog_entries.entry(name, f"{root}/t{next(_ids)}.lance")


def addresses(catalog: RestCatalog) -> dict[str, str]:
    return {name: found.uri for name, found in catalog.tables().items()}


def test_changes_decide_on_what_the_server_holds(client: Client, root: str) -> None:
    catalog, first, second = client(), entry(root), entry(root)
    assert change_table(catalog, "shop.orders", lambda found: first) == first
    found = catalog.table("shop.orders")
    assert change_table(catalog, "shop.orders", lambda found: second) == second
    assert catalog.table("shop.orders") != found
    dropped = second.model_copy(update={"state": "dropped", "write_id": "gone"})
    assert catalog.swap_table("shop.orders", second, dropped)
    assert catalog.table("shop.orders") is None


def test_a_server_that_contradicts_itself_is_named(client: Client, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It describes no table of the name, and has one when the name is registered.  Or it says that one is not there."""
    catalog, first, second = client(), entry(root), entry(root)
    assert catalog.swap_table("shop.orders", None, first)
    with monkeypatch.context() as patch:
        patch.setattr(RestCatalog, "_described", lambda self, name: None)
        with pytest.raises(CatalogRefused, match=r"refused 20 times .* shop\.orders, and still shows no such entry"):
            change_table(catalog, "shop.orders", lambda found: second)
    with monkeypatch.context() as patch:
        patch.setattr(RestCatalog, "_removed", lambda self, name: False)
        with pytest.raises(CatalogRefused, match=rf"still shows it at {first.uri}\. The entry was not changed"):
            change_table(catalog, "shop.orders", lambda found: second)
    assert addresses(catalog) == {"shop.orders": first.uri}


def test_a_change_outlasts_many_others(client: Client, root: str) -> None:
    catalog, other, last = client(), client(), entry(root)
    left = [entry(root) for _ in range(60)]

    def decide(found: TableEntry | None) -> TableEntry:
        if left:
            assert other.swap_table("shop.orders", found, left.pop())
        return last

    assert change_table(catalog, "shop.orders", decide) == last
    assert addresses(catalog) == {"shop.orders": last.uri}


def test_tables_of_a_folder_are_found(root: str) -> None:
    uri = default_uri(root, "shop.orders")
    lance.write_dataset(pa.table({"a": [1]}), uri)
    with RestAdapter("dir", {"root": root}, port=0) as server:
        assert addresses(open_rest(f"http://127.0.0.1:{server.port}")) == {"shop.orders": uri}


def test_a_table_with_managed_versions_is_refused(client: Client, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = client()
    assert catalog.swap_table("shop.orders", None, entry(root))
    answer = DescribeTableResponse(location=f"{root}/x", managed_versioning=True)
    monkeypatch.setattr(TableApi, "describe_table", lambda *arguments, **options: answer)
    with pytest.raises(CatalogRefused, match=r"versions of table shop\.orders"):
        catalog.table("shop.orders")
    assert catalog.tables() == {}


@pytest.mark.parametrize("location", ["file://", "s3://lake/" + "x" * 5000])
def test_a_location_that_is_no_address_is_named(
    client: Client, root: str, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    catalog = client()
    assert catalog.swap_table("shop.orders", None, entry(root))
    answer = DescribeTableResponse(location=location)
    monkeypatch.setattr(TableApi, "describe_table", lambda *arguments, **options: answer)
    for call in (catalog.tables, lambda: catalog.table("shop.orders")):
        with pytest.raises(
            CatalogRefused, match=r"the table shop\.orders the location .* is not an address"
        ) as refused:
            call()
        assert len(str(refused.value)) < 600


def test_spellings_of_a_location_are_one_address(client: Client, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry whose address differs from that of its table would take the name from the table."""
    catalog = client()
    place = {
        "s3://lake/orders": "s3://lake/orders",
        "s3://lake/orders/": "s3://lake/orders",
        "/lake/orders/": "/lake/orders",
    }
    for location in ("orders", "orders/", f"{root}/orders", f"{root}/orders/", f"file://{root}/orders"):
        place[location] = f"{root}/orders"
    for location, expected in place.items():
        answer = DescribeTableResponse(location=location)
        monkeypatch.setattr(TableApi, "describe_table", lambda *_, answer=answer, **__: answer)
        found = catalog.table("shop.orders")
        assert found is not None
        assert found.uri == expected
        made = catalog_entries.entry("shop.orders", expected)
        assert catalog.swap_table("shop.orders", None, made)  # it was done before


def test_a_location_with_a_secret_is_not_shown(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = DescribeTableResponse(location="s3://key:hunter2@lake/orders")
    monkeypatch.setattr(TableApi, "describe_table", lambda *_, **__: answer)
    with pytest.raises(CatalogRefused, match=r"the table shop\.orders a wrong location: .* not shown") as refused:
        client().table("shop.orders")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("endless", ["repeated", "new"])
def test_a_listing_without_end_is_an_error(
    client: Client, root: str, monkeypatch: pytest.MonkeyPatch, endless: str
) -> None:
    catalog = client()
    pages = {None: "a", "a": "b", "b": None}
    asked: list[str | None] = []

    def listed(*arguments: object, page_token: str | None, **options: object) -> ListTablesResponse:
        asked.append(page_token)
        return ListTablesResponse(tables=[f"t{page_token}"], page_token=pages.get(page_token, f"{len(asked)}"))

    monkeypatch.setattr(TableApi, "list_tables", listed)
    monkeypatch.setattr(RestCatalog, "_described", lambda self, name: (entry(root, name), False))
    assert list(catalog.tables()) == ["tNone", "ta", "tb"]
    monkeypatch.setattr(rest_catalog, "PAGES_MAX", 50)
    pages["b"] = "a" if endless == "repeated" else "c"
    said = r"it repeats the page_token 'a'" if endless == "repeated" else "gives more than 50 pages"
    with pytest.raises(CatalogRefused, match=rf"lists its tables without end: .*{said}.*Correct the server"):
        catalog.tables()
    assert len(asked) < 60


def test_cuts_lie_in_the_root(client: Client, root: str) -> None:
    table = CutTable(uri=f"{root}/t", table_uuid="u1", receipt="lw1x", snapshot="june-1")
    cut = Cut(name="june", moving=False, tables={"shop.orders": table}, asked_ms=1, took_ms=1, made_ms=1, write_id="w")
    assert client().swap_cut("june", None, cut)
    assert client().cut("june") == cut
    assert dict(client().cuts()) == {"june": cut}
    rootless = open_rest(client().where)
    assert (rootless.cut("june"), rootless.cuts()) == (None, {})
    with pytest.raises(CatalogRefused, match=r"set catalog\.root"):
        rootless.swap_cut("june", None, cut)


def test_a_server_that_hangs_or_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rest_catalog._LIMIT, "_request_timeout", 0.5)
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        catalog = open_rest(f"http://127.0.0.1:{silent.getsockname()[1]}", "hunter2-do-not-show")
        for listens in (False, True):
            if listens:
                silent.listen()
            begun = time.monotonic()
            for call in (catalog.tables, lambda: catalog.table("shop.orders")):
                with pytest.raises(CatalogUnavailable, match="does not answer") as caught:
                    call()
                assert "hunter2" not in str(caught.value)
            assert time.monotonic() - begun < 10


def test_settings_name_the_server(root: str) -> None:
    def catalog(**given: str) -> object:
        return catalog_of(load_settings(None, {f"LANCEWAL_CATALOG__{name}": text for name, text in given.items()}))

    assert isinstance(catalog(KIND="rest", URL="https://h/x", PASSWORD="p"), RestCatalog)
    assert isinstance(catalog(KIND="rest", URL="http://127.0.0.1:1", PASSWORD="p", ROOT=root), RestCatalog)
    for given, said in (
        ({"URL": "http://h", "PASSWORD": "p"}, "unencrypted"),
        ({"URL": "https://u:p@h"}, "secret in it"),
        ({"URL": "https://h?token=x"}, "not allowed"),
        ({"URL": "https://"}, "not valid"),
    ):
        with pytest.raises(InvalidSettings, match=said):
            catalog(KIND="rest", **given)
