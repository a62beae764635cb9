"""A Lance Namespace over PostgreSQL: Lance's own clients list, open, register and deregister the tables."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import lance
import lance_namespace as ns
import pytest

from lancewal.namespace import PostgresNamespace
from lancewal_core.catalog.postgres_catalog import PostgresCatalog
from lancewal_core.errors import InvalidSettings
from lancewal_kafka.topic import TopicInspector
from lancewal_tables.define.attach import attach_table
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
    location = table(tmp_path / "t")
    for name in ("a", "b", "c", "d"):
        client.register_table(ns.RegisterTableRequest(id=[name], location=location))
    found = catalog.table("b")
    assert found is not None
    assert catalog.swap_table("b", found, found.model_copy(update={"state": "dropped", "write_id": "gone"}))
    assert names(client) == ["a", "c", "d"]
    first = client.list_tables(ns.ListTablesRequest(id=[], limit=2))
    assert first.tables == ["a", "c"]
    assert names(client, page_token=first.page_token) == ["d"]
    with pytest.raises(ns.TableNotFoundError):
        client.describe_table(ns.DescribeTableRequest(id=["b"]))


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
    for location in (tmp_path / "missing", tmp_path / "plain", "s3://user:secret@bucket/t"):
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
