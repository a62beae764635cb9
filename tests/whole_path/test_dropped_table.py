"""A table is dropped while its services work, taken back, and deleted.  The command dies at each of its steps."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

from lancewal_core.catalog.opened import catalog_of
from lancewal_core.cli.options import read_settings
from lancewal_core.errors import TableDropped
from lancewal_core.names import paths
from lancewal_demo.stack import KafkaBroker, S3Server
from lancewal_reader.table import open_table
from tests.support.whole_path import Service, until
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def killed(world: World, failpoint: str, *command: str) -> None:
    environment = {"LANCEWAL_TESTING": "1", "LANCEWAL_FAILPOINT": f"{failpoint}=kill"}
    ended = world.lancewal.run(*command, environment=environment)
    assert ended.code == -signal.SIGKILL, (failpoint, ended.out, ended.err)


def refused(world: World, *command: str) -> None:
    ended = world.lancewal.run(*command)
    assert (ended.code, "lancewal: table_dropped: " in ended.err) == (2, True), ended.err


def stop_by_name(services: list[Service]) -> None:
    for service in services:
        until(lambda service=service: not service.running)  # type: ignore[misc] # bound now
        assert (service.exit_code, "table_dropped" in service.log) == (2, True), service.tail


@pytest.mark.parametrize("place", ["folder", pytest.param("s3", marks=pytest.mark.s3)])
def test_a_table_is_dropped_taken_back_and_deleted(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int, place: str, request: pytest.FixtureRequest
) -> None:
    root, options = str(tmp_path / "lake"), dict[str, str]()
    if place == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        root = f"s3://{s3.bucket(f'drop-{topic_name[-8:]}')}/lake"
        options = {name.lower(): value for name, value in s3.environment.items()}
    uri = f"{root}/shop.orders.lance"
    world = make_world(
        kafka, topic_name, tmp_path, seed, uri=uri, options=options, in_process=True, table={"grace_s": 3600}
    )
    lancewal = world.lancewal
    lancewal.settings({**lancewal.tree, "catalog": {"root": root}})
    lancewal.succeed("catalog", "init")
    lancewal.succeed("catalog", "register", "shop.orders")
    catalog = catalog_of(read_settings(lancewal.config))
    assert catalog is not None

    def rows() -> pa.Table:
        return open_table(world.uri, storage_options=world.options).to_arrow()

    def state() -> str:
        return catalog.tables()["shop.orders"].state

    services = [lancewal.start("ingest", "run"), lancewal.start("flusher", "run")]
    world.feed.produce(60)
    world.wait_caught_up()
    drop, undrop = ("table", "drop", "-t", "shop.orders"), ("table", "undrop", "-t", "shop.orders")
    killed(world, "drop.contract:before", *drop)
    world.check_strong()
    killed(world, "drop.contract:after", *drop)
    stop_by_name(services)
    with pytest.raises(TableDropped):
        rows()
    world.feed.produce(60)
    killed(world, "catalog.swap:before", *drop)
    assert state() == "active"
    before = world.objects()
    lancewal.succeed(*drop)
    assert (state(), world.objects()) == ("dropped", before)
    refused(world, "ingest", "run")
    refused(world, "flusher", "run")
    refused(world, "table", "create")

    killed(world, "drop.contract:after", *undrop)
    assert state() == "dropped"
    lancewal.succeed(*undrop)
    assert state() == "active"
    ingest, flusher = lancewal.start("ingest", "run"), lancewal.start("flusher", "run")
    world.feed.produce_everywhere()
    world.wait_caught_up()
    world.check_strong()

    os.kill(ingest.pid, signal.SIGKILL)  # which leaves open generations
    until(lambda: not ingest.running)
    for failpoint in ("fence.put:before", "fence.put:after", "handover.cas:before", "handover.cas:after"):
        killed(world, failpoint, *drop)
    stop_by_name([flusher])
    lancewal.succeed(*drop)
    world.feed.produce(30)
    lancewal.succeed(*undrop)
    world.finish([lancewal.start("ingest", "run"), lancewal.start("flusher", "run")])

    world.store().put_if_absent("notes.txt", b"of another program")
    lancewal.succeed(*drop)
    asked = lancewal.run(*drop, "--now")
    assert (asked.code, "nobody can be asked here" in asked.err) == (2, True), asked.err
    lancewal.succeed(*undrop)
    world.check_strong()
    killed(world, "drop.delete:before", *drop, "--now", "--yes")
    refused(world, *undrop)
    killed(world, "drop.delete:after", *drop, "--yes")
    assert "deleted " in lancewal.succeed(*drop, "--yes")
    left = world.objects() - {"notes.txt"}
    assert left, "the contracts stay"
    assert {key for key in left if paths.parse_contract_version(key) is None} == set()
    refused(world, *undrop)
    refused(world, "table", "create")
    refused(world, "ingest", "run")
