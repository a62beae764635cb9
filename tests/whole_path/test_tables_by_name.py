"""Tables by name, on the whole path: made, fed, listed, moved, and read again, all by their names."""

from __future__ import annotations

import json
import shutil
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from lance.namespace import RestAdapter

from lancewal_core.cli.options import read_settings
from lancewal_core.open import Address
from lancewal_demo.stack import KafkaBroker, S3Server
from lancewal_demo.stack.ports import free_ports
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.support.topics import make_topics
from tests.support.whole_path import Service, until
from tests.whole_path.test_lost_replies import metric
from tests.whole_path.world import make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def killing(when: str) -> dict[str, str]:
    """The environment of a command that dies at the change of the catalog."""
    return {"LANCEWAL_TESTING": "1", "LANCEWAL_FAILPOINT": f"catalog.swap:{when}=kill"}


def not_ready(port: int) -> str:
    """What ``/readyz`` answers; empty before the process listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except urllib.error.URLError:
        return ""


def test_services_wait_for_a_catalog_that_is_away(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """Ingest and flusher start by name before the catalog answers.  They say so, end in order, and begin once it answers."""
    ingest_port, flusher_port, catalog_port = free_ports(3)
    http = {"ingest_port": ingest_port, "flusher_port": flusher_port}
    uri = str(tmp_path / "lake" / "shop.orders.lance")
    world = make_world(kafka, topic_name, tmp_path, seed, http=http, uri=uri, in_process=True)
    lancewal = world.lancewal
    away = {"kind": "rest", "url": f"http://127.0.0.1:{catalog_port}"}
    lancewal.settings({**lancewal.tree, "table": {"uri": "shop.orders"}, "catalog": away})
    counted = (
        (ingest_port, "lancewal_ingest_failures_total", {"operation": "start"}),
        (flusher_port, "lancewal_flusher_failures_total", {"kind": "catalog_unavailable"}),
    )

    def begun() -> list[Service]:
        said = "catalog_unavailable: not started yet: the catalog "
        services = [lancewal.start("ingest", "run"), lancewal.start("flusher", "run")]
        for service, (port, name, labels) in zip(services, counted, strict=True):
            until(lambda port=port: said in not_ready(port), lambda: lancewal.tails)  # type: ignore[misc] # bound now
            until(lambda port=port, name=name, labels=labels: metric(port, name, **labels) > 0)  # type: ignore[misc]
            (line, *_) = service.logged("operation_failed")
            assert (line["operation"], line["kind"], line["table"]) == ("start", "catalog_unavailable", "shop.orders")
        return services

    for service in begun():
        service.stop()
    services = begun()
    with RestAdapter("dir", {"root": str(tmp_path / "lake")}, port=catalog_port):
        world.feed.produce(60)
        world.wait_caught_up("eventual")
    world.feed.produce(60)  # the catalog is away again, which nobody notices
    lancewal.settings({**lancewal.tree, "table": {"uri": uri}})
    world.finish(services)
    lancewal.settings({**lancewal.tree, "table": {"uri": "shop.bills"}})
    with RestAdapter("dir", {"root": str(tmp_path / "lake")}, port=catalog_port):
        for service in (lancewal.start("ingest", "run"), lancewal.start("flusher", "run")):
            until(lambda service=service: not service.running)  # type: ignore[misc] # bound now
            assert (service.exit_code, "table_unknown: shop.bills" in service.log) == (2, True), service.tail


def test_services_and_commands_work_by_name(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    """A table is registered and one is made; ingest and flusher start by name; the table moves and goes on."""
    ingest_port, flusher_port = free_ports(2)
    http = {"ingest_port": ingest_port, "flusher_port": flusher_port}
    world = make_world(kafka, topic_name, tmp_path, seed, http=http, in_process=True)
    lancewal, lake = world.lancewal, tmp_path / "lake"
    tree = {**lancewal.tree, "catalog": {"root": str(lake)}}
    lancewal.settings(tree)
    assert "0 tables" in lancewal.succeed("catalog", "init")
    for when in ("before", "after"):
        assert lancewal.run("catalog", "register", "shop.orders", environment=killing(when)).code == -signal.SIGKILL
    lancewal.succeed("catalog", "register", "shop.orders")
    lancewal.settings({**tree, "table": {**tree["table"], "uri": "shop.orders"}})

    make_topics(kafka.bootstrap_servers, {f"{topic_name}-2": 2, f"{topic_name}-2.dead-letters": 1})
    items = {**tree["table"], "topic": f"{topic_name}-2"}
    del items["uri"]
    lancewal.settings({**tree, "table": items})
    for when in ("before", "after"):
        create = "table", "create", "--name", "shop.items"
        killed = lancewal.run(*create, environment=killing(when))
        assert killed.code == -signal.SIGKILL, killed.err
        checked = lancewal.run("catalog", "check")
        assert checked.out.startswith("shop.items: no-entry" if when == "before" else "the catalog is right")
        if when == "before":
            assert f"{lake}/shop.items.lance" in lancewal.succeed(*create)
            lancewal.succeed("catalog", "forget", "shop.items")
    lancewal.settings({**tree, "table": {**tree["table"], "uri": "shop.orders"}})

    services = [lancewal.start("ingest", "run"), lancewal.start("flusher", "run")]
    world.feed.produce(60)
    world.wait_caught_up("eventual")
    for port, name in ((ingest_port, "lancewal_ingest_rows_total"), (flusher_port, "lancewal_flusher_merges_total")):
        until(lambda port=port, name=name: metric(port, name, table="shop.orders") > 0)  # type: ignore[misc] # bound now
        assert metric(port, name, table="shop.orders") == metric(port, name)
    for service in services:
        assert {line["table"] for line in service.lines if "event" in line and "table" in line} == {"shop.orders"}
    assert lancewal.succeed("status").startswith(f"table     shop.orders, {world.uri}\n")
    listed = json.loads(lancewal.succeed("catalog", "list", "--by", "lag", "-o", "json"))["tables"]
    by_name = {line["name"]: line for line in listed}
    assert [line["name"] for line in listed] == ["shop.items", "shop.orders"]  # nobody has claimed a partition of items
    rows = open_table(world.uri).to_arrow(consistency="eventual").num_rows
    assert (by_name["shop.orders"]["rows"], by_name["shop.orders"]["lag"]) == (rows, 0)
    assert (by_name["shop.items"]["rows"], by_name["shop.items"]["lag"]) == (0, None)
    assert lancewal.succeed("read", "-t", "shop.items", "-o", "csv").count("\n") == 1
    world.finish(services)

    shutil.move(world.uri, tmp_path / "moved")
    world.uri, world._kept = str(tmp_path / "moved"), None
    refused = lancewal.run("catalog", "check")
    assert (refused.code, "shop.orders: table-missing" in refused.out) == (1, True)
    said = lancewal.succeed("catalog", "register", "shop.orders", "-t", world.uri)
    assert f"was moved or copied from {tmp_path / 'table'}: the table has got the new uuid" in said
    assert lancewal.succeed("catalog", "check") == "the catalog is right\n"
    assert read_settings(lancewal.config).table.uri == world.uri
    services = [lancewal.start("ingest", "run"), lancewal.start("flusher", "run")]
    world.feed.produce(30)
    world.finish(services)
    assert world.uri in lancewal.succeed("catalog", "show", "shop.orders")
    lancewal.succeed("catalog", "forget", "shop.orders")
    unknown = lancewal.run("read")
    assert (unknown.code, "lancewal: table_unknown: shop.orders is neither" in unknown.err) == (2, True)
    world.check_all_in(receipt_of(open_table(world.uri).to_arrow().schema))


@pytest.mark.s3
def test_a_table_that_was_moved_in_a_bucket_is_registered(
    kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """All objects of the prefix are moved, as ``aws s3 mv`` does it.  The table goes on there, with a new uuid."""
    root = f"s3://{s3.bucket(f'moved-{topic_name[-8:]}')}/lake"
    options = {name.lower(): value for name, value in s3.environment.items()}
    former, uri = f"{root}/old.lance", f"{root}/archive/orders"
    world = make_world(kafka, topic_name, tmp_path, seed, uri=former, options=options, in_process=True)
    lancewal = world.lancewal
    tree = {**lancewal.tree, "catalog": {"root": root}}
    lancewal.settings(tree)
    lancewal.succeed("catalog", "init")
    lancewal.succeed("catalog", "register", "shop.orders")
    by_name = {**tree, "table": {"uri": "shop.orders"}}
    lancewal.settings(by_name)
    services = [lancewal.start("ingest", "run"), lancewal.start("flusher", "run")]
    world.feed.produce(60)
    world.finish(services)

    old, new = Address(former, options).store(), Address(uri, options).store()
    for info in old.list(""):
        new.put_if_absent(info.key, old.get(info.key) or b"")
    copied = lancewal.run("catalog", "register", "shop.orders", "-t", uri)
    assert (copied.code, "is the table at" in copied.err) == (2, True), copied.err
    before = Address(former, options).contract().table_uuid
    old.delete([info.key for info in old.list("")])
    checked = lancewal.run("catalog", "check")
    assert (checked.code, "shop.orders: table-missing" in checked.out) == (1, True)
    refused = lancewal.run("ingest", "run")
    assert (refused.code, "not_a_lancewal_table" in refused.err) == (2, True), refused.err
    said = lancewal.succeed("catalog", "register", "shop.orders", "-t", uri)
    after = Address(uri, options).contract().table_uuid
    assert before != after
    assert f"was moved or copied from {former}: the table has got the new uuid {after}" in said
    assert lancewal.succeed("catalog", "check") == "the catalog is right\n"
    assert "the table has got the new uuid" not in lancewal.succeed("catalog", "register", "shop.orders", "-t", uri)
    world.uri, world._kept = uri, None
    services = [lancewal.start("ingest", "run"), lancewal.start("flusher", "run")]
    world.feed.produce(30)
    world.finish(services)
    assert old.list("") == []
