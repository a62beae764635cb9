"""A whole table of one release, packed, with the rows that it holds: ``release_<version>``.

``python -m tests.golden.release_table`` makes that of the version in ``pyproject.toml``, if it is not there yet, and changes
no other: each stands for the tables that users of that release have.  It runs the release's own ingest, flusher and commands
over a topic in memory.  The rows come from ``Pipeline.oracle``, a dict that these services do not see.

The table holds, in the order in which they came:

 1. merged rows whose generations and log segments were removed after the history window,
 2. merged rows with their log, a secondary index that covers them, and a key in conflict,
 3. the named snapshot ``eom``,
 4. flushed rows that no merge has taken,
 5. rows in the log alone: 40 small segments, most of them copied into a bundle; a bad record that was ignored.

Content and keys are the same at each run; ids and times are not.

Contract and snapshot name the table's place.  It is ``HERE``, which is the working folder of whoever looks, so a table is at
its place wherever it is unpacked.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pyarrow.parquet

from lancewal_core.rows.column_types import format_type
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import KafkaSettings, TableSettings
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import Contract, read_contract
from lancewal_kafka.topic import TopicFacts, TopicInspector, TopicState
from lancewal_reader.table import reads_of
from lancewal_tables.define.alter import alter_terms
from lancewal_tables.define.create import create_table
from lancewal_tables.snapshots.make import make_snapshot
from tests.support.pipeline import EVERY_TYPE, Key, Pipeline, Row, by_key

FOLDER = Path(__file__).parent
HERE = Path("/proc/self/cwd")
PARTITIONS = 3
SNAPSHOT = "eom"
IN_CONFLICT: Key = ("conflict", 1)
DAY_S = 24 * 3600.0


def other_systems_key(region: str, id: int, salt: int = 0) -> bytes:
    """A Kafka key as another system writes it: JSON, with a member that is no column."""
    return json.dumps({"id": id, "region": region, "salt": salt}).encode()


def salt_of_another_partition() -> int:
    """The salt by which ``IN_CONFLICT`` comes through another partition than without."""
    here = partition_of(other_systems_key(*IN_CONFLICT), PARTITIONS)
    salts = itertools.count(1)
    return next(s for s in salts if partition_of(other_systems_key(*IN_CONFLICT, s), PARTITIONS) != here)


class NoBroker:
    """What ``create_table`` asks of a topic, answered for one of ``PARTITIONS`` partitions."""

    def describe(self, topic: str) -> TopicState:
        return TopicState(topic, "AAAAAAAAQACAAAAAAAAAAQ", PARTITIONS, compacted=False)

    def identify(self, topic: str) -> TopicFacts:
        return TopicFacts("AAAAAAAAQACAAAAAAAAAAg", PARTITIONS)

    def starts(self, topic: TopicState, start: object) -> tuple[int, ...]:
        return (-1,) * topic.partitions


class ReleaseTable(Pipeline):
    """The table in the working folder: made by the commands, or the one that lies there.

    ``rows``, ``durable``: rows of a strong read, and records of each partition, from before.
    """

    def __init__(self, rows: Mapping[Key, Row] | None = None, durable: Sequence[int] = (0,) * PARTITIONS) -> None:
        super().__init__(
            HERE, EVERY_TYPE, partitions=PARTITIONS, seed=1, seal_rows=10_000, batch=400, keyed_by=other_systems_key
        )
        self.oracle = dict(rows or {})
        for messages, count in zip(self._messages, durable, strict=True):
            messages += [(b"", b"", "upsert")] * count

    def _made(self, partitions: int, attached: Sequence[Row], terms: Mapping[str, Any]) -> Contract:
        assert not attached
        assert not terms
        if Path(self.uri).exists():
            return read_contract(open_store(self.uri), self.uri)
        table = TableSettings.model_validate(
            {
                "uri": self.uri,
                "topic": "orders",
                "columns": {f.name: format_type(f.type) for f in EVERY_TYPE},
                "primary_key": ("region", "id"),
                "format": {"key": "bytes"},
                "on_bad_record": "ignore",
            }
        )
        settings = Settings(table=table, kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))
        create_table(settings, cast("TopicInspector", NoBroker()))
        return alter_terms(settings, {"group_id": "orders-ingest"})

    def upsert_by(self, salt: int, key: Key, **values: Any) -> None:
        """Upsert a row under the Kafka key with this salt."""
        self.keyed_by = lambda region, id: other_systems_key(region, id, salt)
        self.upsert(*key, **values)
        self.keyed_by = other_systems_key

    def send_bad_record(self, partition: int) -> None:
        self._messages[partition].append((other_systems_key("r1", 1), b"{", "upsert"))

    @property
    def sent(self) -> list[int]:
        """How many records each partition has."""
        return [len(messages) for messages in self._messages]

    def later(self, days: float) -> None:
        self.clock.ahead_s += days * DAY_S


def fill(table: ReleaseTable) -> dict[str, dict[Key, Row]]:
    """Steps 1 to 5; the rows by what has them: the snapshot, the merged table once all flushes are merged, a strong read."""
    # Step 1
    table.clock.ahead_s = -5 * DAY_S
    table.produce(120)
    table.merge_all()
    table.produce(120)
    table.merge_all()
    for _ in range(3):
        table.later(1.2)
        table.collect()
    table.clock.ahead_s = 0.0
    # Step 2
    table.upsert_by(0, IN_CONFLICT, a=1, s="the first partition's")
    table.produce(200)
    table.merge_all()
    lance.dataset(table.uri).create_scalar_index("id", "BTREE")
    owned = table.oracle[IN_CONFLICT]
    table.upsert_by(salt_of_another_partition(), IN_CONFLICT, a=2, s="another partition's")
    table.oracle[IN_CONFLICT] = owned
    table.produce(60)
    table.merge_all()
    # Step 3
    found = {"snapshot": dict(table.oracle)}
    context = table.flusher()
    make_snapshot(context, reads_of(context, table.uri), SNAPSHOT, None, None)
    # Step 4
    table.produce(150)
    table.ingest()
    table.hand_over()
    found["merged"] = dict(table.oracle)
    # Step 5
    for _ in range(40):
        table.produce(3)
        table.ingest()
    table.send_bad_record(0)
    table.ingest()
    table.settle()
    found["head"] = dict(table.oracle)
    return found


def make(folder: Path) -> None:
    """Write table and rows into ``folder``."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        table = ReleaseTable()
        rows = fill(table)
        folder.mkdir()
        for name, of_name in rows.items():
            ordered = pa.Table.from_pylist([of_name[key] for key in sorted(of_name)], EVERY_TYPE)
            pyarrow.parquet.write_table(ordered, folder / f"{name}.parquet", compression="zstd")
        with tarfile.open(folder / "table.tar.gz", "w:gz") as archive:
            archive.add(table.uri, "table", filter=of_nobody)
        (folder / "durable.json").write_text(json.dumps(table.sent) + "\n")
        table.close()


def of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without the user who packed it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(release: Path) -> str:
    """Put a release's table into the working folder and return its address."""
    with tarfile.open(release / "table.tar.gz") as archive:
        archive.extractall(filter="data")
    return str(HERE / "table")


def rows_of(release: Path, name: str) -> dict[Key, Row]:
    """The rows that ``fill`` has named so."""
    return by_key(pyarrow.parquet.read_table(release / f"{name}.parquet"))


if __name__ == "__main__":
    version = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())["project"]["version"]
    if not (FOLDER / f"release_{version}").exists():
        make(FOLDER / f"release_{version}")
