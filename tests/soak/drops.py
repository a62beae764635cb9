"""Tables that go and come again under load: hundreds of lives of tables with the same names, addresses and topic.

``python3 dev.py soak drops [--lives 300] [--store az]``: a producer goes on all the time.  Each life makes a table by a name
that starts at the topic's end, works on it with real ingest and flusher, and ends it: by ``table drop`` (perhaps taken back
first) and ``--now``, or by another program that deletes the folder.  Services are killed meanwhile.  Then the name is
forgotten, what is left of the folder is removed, and a later life takes the same place.

Laws
 1. A table has the fold of the records from its start to what a read says, so no row of a former table and no lost row.
 2. The catalog equals a dict of names, uuids and states after each act.
 3. Services end by name, and nothing appears in a place between two lives.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from lancewal_core.catalog.opened import catalog_of
from lancewal_core.cli.options import read_settings
from lancewal_core.open import Address
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.support.store_addresses import SERVERS, StoreServer, inside
from tests.support.whole_path import Service, until
from tests.whole_path.world import World, make_world, positions

NAMES = ("shop.orders", "shop.items")
BY_NAME = ("table_dropped", "table_missing", "table_replaced")


class DropSoak:
    """One run.  ``root`` is that of the catalog; ``made`` has the topic and the settings, and its own table is not used."""

    def __init__(self, made: World, root: str, seed: int) -> None:
        self.rng = random.Random(f"drops {seed}")
        self.counts: Counter[str] = Counter()
        self._made, self._root = made, root
        self._lancewal = made.lancewal
        tree = {name: section for name, section in self._lancewal.tree.items() if name != "table"}
        self._terms = {name: term for name, term in self._lancewal.tree["table"].items() if name != "uri"}
        self._tree = {**tree, "catalog": {"root": root}}
        self._model: dict[str, tuple[str, str]] = {}
        """Uuid and state of each table in the catalog."""
        self._lock = threading.Lock()
        self._settings("")
        self._lancewal.succeed("catalog", "init")

    def run(self, lives: int) -> None:
        """This many lives, while records are produced."""
        with self._load():
            for _ in range(lives):
                self._life(self.rng.choice(NAMES))

    @contextmanager
    def _load(self) -> Iterator[None]:
        over = threading.Event()

        def produce() -> None:
            while not over.wait(0.05):
                with self._lock:
                    self._made.feed.produce(20)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _life(self, name: str) -> None:
        self._settings("")
        self._lancewal.succeed("table", "create", "--name", name)
        uri = f"{self._root}/{name}.lance"
        contract = Address(uri, self._made.options).contract()
        world = replace(self._made, uri=uri, begin=dict(enumerate(contract.start)), _kept=None)
        self._is(name, contract.table_uuid, "active")
        self._settings(name)
        services = self._services()
        self._caught_up(world)
        end = self.rng.choice(("dropped", "undropped", "deleted"))
        if self.rng.random() < 0.3:
            killed = self.rng.choice(services)
            killed.kill()
            until(lambda: not killed.running)
            services.remove(killed)
            self.counts["killed"] += 1
        if end == "undropped":
            self._drop(name, contract.table_uuid, services)
            self._lancewal.succeed("table", "undrop")
            self._is(name, contract.table_uuid, "active")
            services = self._services()
            self._caught_up(world)
        if end == "deleted":
            world.remove_by_hand()
            self._stopped(services)
        else:
            self._drop(name, contract.table_uuid, services)
            self._lancewal.succeed("table", "drop", "--now", "--yes")
        world.remove_by_hand()
        refused = self._lancewal.run("flusher", "run")
        assert refused.code == 2, refused.err
        assert world.objects() == set()
        self._lancewal.succeed("catalog", "forget", name)
        del self._model[name]
        self._compare()
        self.counts[end] += 1

    def _drop(self, name: str, uuid: str, services: Sequence[Service]) -> None:
        self._lancewal.succeed("table", "drop")
        self._is(name, uuid, "dropped")
        self._stopped(services)

    def _stopped(self, services: Sequence[Service]) -> None:
        for service in services:
            until(lambda service=service: not service.running, lambda service=service: service.tail)  # type: ignore[misc]
            said = any(f"lancewal: {kind}: " in service.log for kind in BY_NAME)
            assert (service.exit_code, said) == (2, True), service.tail

    def _services(self) -> list[Service]:
        return [self._lancewal.start("ingest", "run"), self._lancewal.start("flusher", "run")]

    def _caught_up(self, world: World) -> None:
        """Wait until a read has all that was produced by now, and compare it (law 1)."""
        with self._lock:
            wanted = dict(world.feed.history.ends)

        def reached() -> bool:
            rows = open_table(world.uri, storage_options=world.options).to_arrow()
            cut = positions(receipt_of(rows.schema))
            with self._lock:
                world.compare(rows.to_pylist(), cut, f"a table of {world.uri}")
            self.counts["reads"] += 1
            return all(cut.get(partition, 0) >= end for partition, end in wanted.items())

        until(reached, lambda: f"reads do not reach {wanted}\n{self._lancewal.tails}", poll_s=0.2)

    def _settings(self, name: str) -> None:
        """Settings of the table of this name; of a new table that starts at the topic's end if the name is empty."""
        table = {**self._terms, "start": "latest"} if not name else {"uri": name}
        self._lancewal.settings({**self._tree, "table": table})

    def _is(self, name: str, uuid: str, state: str) -> None:
        assert uuid not in {known for of, (known, _) in self._model.items() if of != name}
        self._model[name] = uuid, state
        self._compare()

    def _compare(self) -> None:
        """The catalog equals the dict (law 2)."""
        catalog = catalog_of(read_settings(self._lancewal.config, find="none"))
        assert catalog is not None
        assert {name: (found.table_uuid, found.state) for name, found in catalog.tables().items()} == self._model


def soak_in(broker: KafkaBroker, store: StoreServer | None, folder: Path, topic: str, seed: int) -> DropSoak:
    """A soak in a folder, or in a bucket of ``store``."""
    root, options = (str(folder / "lake"), {}) if store is None else inside(store, f"drops-{topic[-8:]}", "lake")
    made = make_world(
        broker,
        topic,
        folder,
        seed,
        uri=f"{root}/unused.lance",
        options=options,
        in_process=True,
        table={"grace_s": 3600},
    )
    made.remove_by_hand()
    return DropSoak(made, root, seed)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak drops", description=__doc__)
    parser.add_argument("--lives", type=int, default=300, help="lives of tables, half of them in a bucket")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--store", choices=sorted(SERVERS), default="s3", help="kind of object store with the bucket")
    parser.add_argument("--folder", type=Path, default=None, help="where logs stay; default: a temporary folder")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lancewal-drops-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, {given.lives} lives, {folder}", flush=True)
    began, failed = time.monotonic(), 0
    with KafkaBroker(folder / "kafka") as broker, SERVERS[given.store](folder / "store") as server:
        for place, store in (("folder", None), ("bucket", server)):
            soak = soak_in(broker, store, folder / place, f"drops-{place}-{secrets.token_hex(4)}", given.seed)
            try:
                soak.run(given.lives // 2)
            except AssertionError as error:
                failed = 1
                print(f"DOES NOT HOLD: {str(error)[:4000]}", flush=True)
            told = {"place": place, **soak.counts, "failed": failed, "seconds": round(time.monotonic() - began)}
            print(json.dumps(told), flush=True)
    return failed
