"""A Lance Namespace over PostgreSQL: Lance's own clients list, open, register and deregister the tables."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any, cast

import lance
import lance_namespace as ns
import pytest

from lancewal.namespace import PostgresNamespace
from lancewal_core.catalog.cut import CutTable
from lancewal_core.catalog.postgres_catalog import PostgresCatalog
from lancewal_core.errors import InvalidSettings
from lancewal_core.open import Address
from lancewal_kafka.topic import TopicInspector
from lancewal_tables.catalog import registration
from lancewal_tables.catalog.dropping import contract_of, drop_table
from lancewal_tables.define.attach import attach_table
from tests.golden.json_formats import CONTRACT
from tests.support.catalog_entries import cut
from tests.support.postgres import PASSWORD, PostgresServer
from tests.tables.define.test_copies import ROWS, NoBroker, settings_of


def table(uri: Path) -> str:
    lance.write_dataset(ROWS, str(uri))
    attach_table(settings_of(uri), inspector=cast("TopicInspector", NoBroker()))
    return str(uri)


def connected(url: str, password: str = PASSWORD) -> ns.LanceNamespace:
    return ns.connect("lancewal.namespace.PostgresNamespace", {"url": url, "password": password})


def names(client: ns.LanceNamespace, **asked: Any) -> list[str]:
    return list(client.list_tables(ns.ListTablesRequest(id=[], **asked)).tables)


def test_lances_clients_find_and_open_the_tables(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.database()
    client, other = connected(url), connected(url)
    orders, items = table(tmp_path / "orders"), table(tmp_path / "items")
    assert names(client) == []
    for name, location in (("shop.orders", orders), ("shop.items", items)):
        assert client.register_table(ns.RegisterTableRequest(id=[name], location=location)).location == location
    with pytest.raises(ns.TableAlreadyExistsError):
        other.register_table(ns.RegisterTableRequest(id=["shop", "orders"], location=items))
    assert names(other) == ["shop.items", "shop.orders"]
    opened = lance.dataset(namespace_client=other, table_id=["shop.orders"])
    assert opened.count_rows() == ROWS.num_rows
    assert other.describe_table(ns.DescribeTableRequest(id=["shop", "items"])).location == items
    other.table_exists(ns.TableExistsRequest(id=["shop.items"]))
    contract = PostgresCatalog(url, PASSWORD).tables()["shop.orders"]
    assert (contract.topic, contract.uri) == (settings_of(tmp_path).table.topic, orders)
    assert other.deregister_table(ns.DeregisterTableRequest(id=["shop.orders"])).location == orders
    assert names(client) == ["shop.items"]
    assert lance.dataset(orders).count_rows() == ROWS.num_rows
    for call in (
        partial(client.describe_table, ns.DescribeTableRequest(id=["shop.orders"])),
        partial(client.table_exists, ns.TableExistsRequest(id=["shop.orders"])),
        partial(client.deregister_table, ns.DeregisterTableRequest(id=["shop.orders"])),
    ):
        with pytest.raises(ns.TableNotFoundError):
            call()


def test_dropped_tables_are_not_shown_and_pages_follow(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.database()
    client, catalog = connected(url), PostgresCatalog(url, PASSWORD)
    for name in ("a", "b", "c", "d"):
        client.register_table(ns.RegisterTableRequest(id=[name], location=table(tmp_path / name)))
    found = catalog.table("b")
    assert found is not None
    assert catalog.swap_table("b", found, found.model_copy(update={"state": "dropped", "write_id": "gone"}))
    assert names(client) == ["a", "c", "d"]
    first = client.list_tables(ns.ListTablesRequest(id=[], limit=2))
    assert first.tables == ["a", "c"]
    assert names(client, page_token=first.page_token) == ["d"]
    with pytest.raises(ns.TableNotFoundError):
        client.describe_table(ns.DescribeTableRequest(id=["b"]))
    for limit in (0, -1):
        with pytest.raises(ns.InvalidInputError, match=rf"limit {limit} is not valid"):
            names(client, limit=limit)


def test_the_rules_of_registration_hold(postgres: PostgresServer, tmp_path: Path) -> None:
    """The contract has the name, a table has one name, and a table of a kept cut is not deregistered."""
    url = postgres.database()
    client, catalog = connected(url), PostgresCatalog(url, PASSWORD)
    orders = table(tmp_path / "orders")

    def register(name: str, location: object) -> None:
        client.register_table(ns.RegisterTableRequest(id=[name], location=str(location)))

    register("shop.orders", orders)
    contract = Address(orders).contract()
    found = catalog.table("shop.orders")
    assert found is not None
    assert (contract.name, found.table_uuid) == ("shop.orders", contract.table_uuid)
    with pytest.raises(ns.TableAlreadyExistsError, match=r"has the name shop\.orders in the catalog"):
        register("crm.orders", orders)
    shutil.copytree(orders, tmp_path / "copy")
    with pytest.raises(ns.InvalidInputError, match=r"lancewal table moved --from"):
        register("copy", tmp_path / "copy")
    shutil.move(orders, tmp_path / "away")
    with pytest.raises(ns.TableAlreadyExistsError):
        register("shop.orders", table(tmp_path / "other"))
    shutil.move(tmp_path / "away", orders)
    held = CutTable(uri=orders, table_uuid=contract.table_uuid, receipt="lw1.x", snapshot="june-1")
    june = cut("june").model_copy(update={"tables": {"shop.orders": held}})
    assert catalog.swap_cut("june", None, june)
    request = ns.DeregisterTableRequest(id=["shop.orders"])
    with pytest.raises(ns.InvalidInputError, match=r"in kept cuts, .*: june"):
        client.deregister_table(request)
    assert names(client) == ["shop.orders"]
    assert catalog.swap_cut("june", june, None)
    client.deregister_table(request)
    assert names(client) == []


def test_tables_that_were_dropped_or_are_damaged_are_not_registered(postgres: PostgresServer, tmp_path: Path) -> None:
    client = connected(postgres.database())
    dropped, damaged = (table(tmp_path / name) for name in ("dropped", "damaged"))
    settings = settings_of(Path(dropped))
    drop_table(settings, None, contract_of(settings))
    (contract,) = (Path(damaged) / "_lancewal" / "contract").glob("*.json")
    contract.write_bytes(b"{}")
    for location, error in ((dropped, ns.InvalidInputError), (damaged, ns.InternalError)):
        with pytest.raises(error):
            client.register_table(ns.RegisterTableRequest(id=["a"], location=location))
    assert names(client) == []


def test_the_entry_has_the_account_of_azure(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options name the account.  A reader without these options finds the same table."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    contract = CONTRACT.model_copy(update={"place": None, "drop": None})
    monkeypatch.setattr(Address, "contract", lambda address: contract)
    monkeypatch.setattr(registration, "give_name", lambda address, name: contract)
    client = PostgresNamespace(postgres.database(), PASSWORD, **{"storage.azure_storage_account_name": "mine1"})
    answer = client.register_table(ns.RegisterTableRequest(id=["a"], location="az://lake/orders"))
    assert answer.location == "abfss://lake@mine1.dfs.core.windows.net/orders"


def test_there_is_one_namespace_the_root(postgres: PostgresServer) -> None:
    client = connected(postgres.database())
    assert client.list_namespaces(ns.ListNamespacesRequest(id=[])).namespaces == []
    client.describe_namespace(ns.DescribeNamespaceRequest(id=[]))
    client.namespace_exists(ns.NamespaceExistsRequest(id=[]))
    with pytest.raises(ns.NamespaceNotFoundError, match="shop"):
        client.list_tables(ns.ListTablesRequest(id=["shop"]))
    assert PASSWORD not in client.namespace_id()


def test_errors_are_those_of_the_namespace(postgres: PostgresServer, tmp_path: Path) -> None:
    client = connected(postgres.database())
    lance.write_dataset(ROWS, str(tmp_path / "plain"))
    for location in (
        tmp_path / "missing",
        tmp_path / "plain",
        "s3://user:secret@bucket/t",
        "s3a://bucket/t",
        "",
        "az:///",
    ):
        with pytest.raises(ns.InvalidInputError):
            client.register_table(ns.RegisterTableRequest(id=["a"], location=str(location)))
    with pytest.raises(ns.InvalidInputError, match="not the name of a table"):
        client.describe_table(ns.DescribeTableRequest(id=["../a"]))
    with pytest.raises(ns.PermissionDeniedError):
        names(connected(postgres.url(), "wrong"))
    with pytest.raises(ns.ServiceUnavailableError):
        names(connected("postgresql://127.0.0.1:1/x"))
    with pytest.raises(InvalidSettings, match="'region' is not a property"):
        PostgresNamespace("postgresql://127.0.0.1/x", region="x")
