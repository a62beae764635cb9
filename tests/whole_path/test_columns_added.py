"""``on_unknown_column: add`` with real processes, Kafka and S3: two members meet a field at once, and members are killed at
each step of a change.  The format of values is a fake, since no format of this release has schemas."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

import lance
import pytest

from lancewal_core.cli.options import read_settings
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.table.contract import Contract, put_next, read_contract
from lancewal_demo.stack import KafkaBroker, S3Server
from tests.support.format_with_schemas import DIES_AT, TYPES
from tests.support.whole_path import Service, until
from tests.whole_path import feed
from tests.whole_path.feed import PARTITIONS, Record
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(600)]

VALUES = {"int64": 7, "float64": 0.5, "string": "ü"}
STEPS = {"n1": "before:1", "n2": "after:1", "n3": "before:2"}
"""Where the member dies that meets a field: before the table grows, before the contract, before the table shrinks."""


def contract_of(world: World) -> Contract:
    return read_contract(Address.of(read_settings(world.lancewal.config)).store(), world.uri)


def says_add(world: World) -> None:
    """No command of this release lets a table of JSON say ``add``."""
    before = contract_of(world)
    terms = {"version": before.version + 1, "format": 2, "on_unknown_column": "add"}
    store = Address.of(read_settings(world.lancewal.config)).store()
    put_next(store, SystemClock(), before, before.model_copy(update=terms))
    entry_points = world.lancewal.folder / "site" / "lancewal-0.dist-info" / "entry_points.txt"
    found, count = re.subn(
        r"(?m)^ingest = .*$", "ingest = tests.whole_path.ingest_with_schemas:app", entry_points.read_text()
    )
    assert count == 1
    entry_points.write_text(found)


def send_everywhere(world: World, name: str) -> None:
    """Records with this field in each partition, all at once."""
    before = dict(world.feed.history.ends)
    rows = ({"customer": f"{name}-{number}", "id": 1, name: VALUES[TYPES[name]]} for number in range(100))
    world.feed.send(Record("upsert", row) for row in rows)
    ends = world.feed.history.ends
    assert all(ends.get(p, 0) > before.get(p, 0) for p in range(PARTITIONS))


def added(*services: Service) -> list[str]:
    return [line["column"] for service in services for line in service.logged("column_added")]


def killed_at(world: World, step: str, name: str, before: Sequence[Service]) -> Service:
    """A member takes over, meets a field, and dies; the member that comes after it."""
    victim = world.lancewal.start("ingest", "run", environment={DIES_AT: step})
    for service in before:
        service.stop()
    until(lambda: len(victim.opened) == PARTITIONS, lambda: world.lancewal.tails)
    send_everywhere(world, name)
    until(lambda: victim.exit_code == -signal.SIGKILL, lambda: victim.tail)
    return world.lancewal.start("ingest", "run")


def test_columns_are_added_by_ingest(
    kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, options = f"s3://{s3.bucket(f'added-{seed}')}/one", {n.lower(): value for n, value in s3.environment.items()}
    world = make_world(kafka, topic_name, tmp_path, seed, uri=uri, options=options, in_process=True)
    says_add(world)
    flusher = world.lancewal.start("flusher", "run")
    members = [world.lancewal.start("ingest", "run") for _ in range(2)]
    until(lambda: all(len(member.opened) >= 1 for member in members), lambda: world.lancewal.tails)
    until(lambda: len(members[0].opened | members[1].opened) == PARTITIONS, lambda: world.lancewal.tails)
    world.feed.produce(60)

    monkeypatch.setitem(feed.COLUMNS, "note", TYPES["note"])
    send_everywhere(world, "note")
    world.feed.produce(60)
    world.wait_caught_up()
    assert added(*members) == ["note"]
    world.check_strong()

    last = members
    for name, step in STEPS.items():
        monkeypatch.setitem(feed.COLUMNS, name, TYPES[name])
        last = [killed_at(world, step, name, last)]
        world.wait_caught_up()
        world.check_strong()

    monkeypatch.setitem(feed.COLUMNS, "n4", TYPES["n4"])
    send_everywhere(world, "n4")
    world.wait_caught_up()
    contract = contract_of(world)
    assert [column.name for column in contract.columns] == [*feed.COLUMNS]
    assert lance.dataset(world.uri, storage_options=dict(world.options)).schema.names == [*feed.COLUMNS]
    assert not [line for service in (*members, *last) for line in service.logged("dead_letters_written")]
    world.verify()
    world.finish([*last, flusher])
    world.verify()
