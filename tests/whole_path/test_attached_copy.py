"""An original and its attached copy on one topic, through real services: each gets every record."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from lancewal_core.cli.options import read_settings
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_demo.stack import KafkaBroker
from lancewal_tables.define.attach import attach_table
from lancewal_tables.status.status import table_status
from tests.support.whole_path import Lancewal, until
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_original_and_copy_each_get_all_rows(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = make_world(kafka, topic_name, tmp_path / "one", seed, in_process=True, table={"patches": False})
    world.feed.produce(300)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    world.lancewal.succeed("merge")  # what is durable so far may be sealed, or not
    place = str(tmp_path / "two" / "table")
    merged = lance.dataset(world.uri)
    merged.deep_clone(place, merged.version)
    tree = world.lancewal.tree
    # The records from the first one on: what the clone has of them is folded over by the same.
    copy = World(
        Lancewal(tmp_path / "two", {**tree, "table": {**tree["table"], "uri": place, "columns": {}}}),
        world.feed,
        place,
        {},
        world.servers,
    )
    attach_table(read_settings(copy.lancewal.config))
    other = copy.lancewal.start("ingest", "run")
    until(lambda: len(other.opened) == len(ingest.opened), lambda: f"{ingest.tail}\n{other.tail}")
    world.feed.produce(700)
    for one in (world, copy):
        one.wait_caught_up()
        status = table_status(read_settings(one.lancewal.config), one.uri, kafka_timeout_s=120.0)
        assert (status.group_members, status.problems) == (1, ())
    for one in (world, copy):
        one.check_all_in(one.check_strong())

    # A group for both, as somebody may set it, or an older copy have it.
    other.stop()
    group = f"lancewal-{read_contract(open_store(world.uri), world.uri).table_uuid}"
    copy.lancewal.settings({**copy.lancewal.tree, "kafka": {**tree["kafka"], "group_id": group}})
    copy.lancewal.succeed("table", "alter", "--group", group)
    other = copy.lancewal.start("ingest", "run")
    until(lambda: bool(other.opened), lambda: other.tail)
    for one, theirs in ((world, place), (copy, world.uri)):
        (problem,) = table_status(read_settings(one.lancewal.config), one.uri, kafka_timeout_s=120.0).problems
        assert f"at {theirs} (" in problem
        assert "Each of the two tables gets the records of a part" in problem
    for service in (other, ingest):
        service.stop()
