"""Another program deletes the folder of a table while services work on it: they stop by name, and nothing comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace import DropTableRequest, InternalError

from lancewal_core.names import paths
from lancewal_demo.stack import KafkaBroker, S3Server
from tests.support.whole_path import Service, until
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(600)]


def drop_as_lance(world: World) -> None:
    """As a client of Lance Namespace that knows nothing of lancewal."""
    root, _, name = world.uri.removesuffix(".lance").rpartition("/")
    options = {f"storage.{name}": value for name, value in world.options.items()}
    untyped: Any = DirectoryNamespace
    namespace = untyped(root=root, manifest_enabled="false", **options)
    try:
        namespace.drop_table(DropTableRequest(id=[name]))
    except InternalError:  # a folder was not empty: a service has put something meanwhile
        world.remove_by_hand()


def stop_by_name(services: list[Service]) -> None:
    """One that meets what a deletion has left so far may take it for another table."""
    for service in services:
        until(lambda service=service: not service.running, lambda service=service: service.tail)  # type: ignore[misc]
        said = any(f"lancewal: {kind}: " in service.log for kind in ("table_missing", "table_replaced"))
        assert (service.exit_code, said) == (2, True), service.tail


@pytest.mark.parametrize("place", ["folder", "s3"])
@pytest.mark.parametrize("delete", [drop_as_lance, World.remove_by_hand])
def test_services_of_a_deleted_table_stop_and_write_nothing_more(
    kafka: KafkaBroker,
    s3: S3Server,
    topic_name: str,
    tmp_path: Path,
    seed: int,
    place: str,
    delete: Callable[[World], None],
) -> None:
    on_s3 = place == "s3"
    uri = f"s3://{s3.bucket(f'gone-{topic_name[-8:]}')}/lake/orders.lance" if on_s3 else f"{tmp_path}/lake/orders.lance"
    options = {name.lower(): value for name, value in s3.environment.items()} if on_s3 else {}
    world = make_world(kafka, topic_name, tmp_path, seed, uri=uri, options=options, in_process=True)
    lancewal = world.lancewal
    frozen, killed = lancewal.start("ingest", "run"), lancewal.start("ingest", "run")
    services = [lancewal.start("ingest", "run"), lancewal.start("flusher", "run")]
    world.feed.produce(60)
    world.wait_caught_up()
    world.feed.produce(60)
    frozen.freeze()
    killed.kill()

    delete(world)
    world.feed.produce(60)
    stop_by_name(services)
    frozen.thaw()
    stop_by_name([frozen])
    left = world.objects()
    assert {key for key in left if paths.parse_contract_version(key) is not None} == set()
    assert on_s3 or not Path(uri).exists()
    for command in ("ingest", "flusher"):
        ended = lancewal.run(command, "run")
        assert (ended.code, "not_a_lancewal_table" in ended.err or "table_missing" in ended.err) == (2, True), ended.err
    assert world.objects() == left
    assert on_s3 or not Path(uri).exists()
