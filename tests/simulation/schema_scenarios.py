"""Values name schemas of a registry: the registry loses them, learns them late, or gives an id away, between other steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from lancewal_core.errors import RegistryUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import SchemaKey
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import Op
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.registry.comparison import EVERY_S
from lancewal_ingest.registry.lookups import NOT_FOUND_S
from tests.simulation.checker import require
from tests.simulation.oracle import Record
from tests.simulation.script import Crashed, crash
from tests.simulation.stage import Member, Stage
from tests.support.fake_registry import JSON, FakeRegistry
from tests.twins.faults import PutFault
from tests.twins.sim_clock import EPOCH_MS

OTHER = WriterSchema("json-schema", '{"type": "array"}')
SEVEN = SchemaKey("id-7")


class SchemaStage(Stage):
    """A stage whose topic has framed JSON."""

    def __init__(self, *, begins_with_json: bool = False) -> None:
        super().__init__()
        self.fake = FakeRegistry(id_7=JSON)
        self.registry = self.fake
        if not begins_with_json:
            self.frames()

    def frames(self) -> None:
        """The table has values with frames from now on."""
        self.alter(format=2, value_format="json-schema", on_wrong_format="dead-letter", on_unknown_schema="dead-letter")

    def framed(self, partition: int, schema: int = 7, op: Op | None = Op.UPSERT) -> None:
        """A record of this schema; ``op`` is None if it must be no row."""
        here = (k for k in range(1000) if partition_of(encode_region_key(k), self.settings.partitions) == partition)
        k = next(k for k in here if k not in self._sent(partition))
        now_ms, key = EPOCH_MS + int(self.scheduler.now * 1000) + 1, encode_region_key(k)
        value = b"\0" + schema.to_bytes(4) + json.dumps({"k": k, "a": f"a{k}"}).encode()
        values: dict[str, object] = {} if op is None else {"a": f"a{k}", "b": None}
        self.topic.append(partition, lambda offset: Record(offset, now_ms, key, value, None, op, k, values))

    def later(self, member: Member, seconds: float, times: int = 6) -> None:
        """The member turns some times within so many seconds."""
        for _ in range(times):
            self.scheduler.now += seconds / times
            self.step(member)

    def is_durable(self, partition: int, end: int) -> None:
        require(self.acknowledged.get(partition, 0) == end, "durable up to", self.acknowledged, "of", end)
        self.schemas_are_stored()
        self.checker.check(self.acknowledged)

    def schemas_are_stored(self) -> None:
        """Whoever reads the records again finds the schemas of all that are durable."""
        for partition, log in enumerate(self.topic.partitions):
            for record in log.between(0, self.acknowledged.get(partition, 0)):
                number = int.from_bytes((record.value or b"")[1:5])
                if not number:
                    continue  # it has no frame
                named = SchemaKey(f"id-{number}")
                key = paths.writer_schema_version(named, 1, self.contract.making)
                require(self.bucket.get(key) is not None, "there is no stored schema for record", record.offset)


def owner_dies_between_a_schema_and_its_rows() -> None:
    """A dies before it puts the segment; the registry is away when B takes over."""
    stage = SchemaStage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.framed(0)
    a.script.before("put", paths.WAL, crash)
    with suppress(Crashed):
        stage.later(a, 2.0)
        raise AssertionError("A was to die")
    stage.fake.fault = RegistryUnavailable("away")
    stage.take_over(a, b, 0, 1)
    stage.later(b, 2.0)
    stage.is_durable(0, 1)


def store_takes_no_schema() -> None:
    """The store refuses the schema for some time: no row of it is durable before it is there."""
    stage = SchemaStage()
    a = stage.member("a", 0, 1)
    a.script.puts.extend([("/schemas/", PutFault.NEVER_ARRIVED)] * 20)
    stage.framed(0)
    for _ in range(8):
        stage.later(a, 2.0, 1)
        stage.schemas_are_stored()
    stage.is_durable(0, 1)


def registry_learns_a_schema_late() -> None:
    """A finds that nobody knows a schema, and dies after the dead letter.  The registry knows it when B takes over."""
    stage = SchemaStage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.framed(0, 8, op=None)
    a.script.before("put", paths.WAL, crash)
    with suppress(Crashed):
        stage.later(a, 3 * NOT_FOUND_S)
        raise AssertionError("A was to die")
    stage.fake.has[SchemaKey("id-8")] = JSON
    stage.take_over(a, b, 0, 1)
    stage.later(b, 3 * NOT_FOUND_S)
    stage.is_durable(0, 1)


def two_owners_of_two_registries() -> None:
    """A and B have partitions of one topic, and registries that differ.  What is stored first counts, and B stops."""
    stage = SchemaStage()
    a = stage.member("a", 0)
    stage.registry = FakeRegistry(id_7=OTHER)
    b = stage.member("b", 1)

    def first() -> None:
        stage.framed(0)
        stage.later(a, 2.0)

    b.script.before("put", "/schemas/", first)
    stage.framed(1)
    stage.later(b, 2.0)
    stage.is_durable(0, 1)
    found = b.worker.stopped.get(stage.region(1))
    require(found is not None and found.kind == "schema_id_reused", "B goes on by another schema:", found)
    require(stage.acknowledged.get(1, 0) == 0, "B made a row durable")


def registry_gives_an_id_away() -> None:
    """The registry is built again.  Only the partition with records of that id stops, and it goes on once the id is right."""
    stage = SchemaStage()
    a = stage.member("a", 0, 1)
    stage.framed(0)
    stage.framed(1, 0, op=None)
    stage.later(a, 2.0)
    stage.fake.has[SEVEN] = OTHER
    stage.later(a, 2 * EVERY_S)
    stopped = {region.partition: error.kind for region, error in a.worker.stopped.items()}
    require(stopped == {0: "schema_id_reused"}, "an id that was given away stops", stopped)
    stage.framed(0)
    stage.later(a, 2.0)
    stage.is_durable(0, 1)
    stage.fake.has[SEVEN] = JSON
    stage.later(a, 2 * EVERY_S)
    stage.is_durable(0, 2)


def format_changes_under_a_record() -> None:
    """A decodes a record by a contract that says JSON, and finds the version that says otherwise.  It knows no schema yet."""
    stage = SchemaStage(begins_with_json=True)
    a = stage.member("a", 0, 1)
    stage.framed(0)
    stage.frames()
    stage.later(a, 2.0)
    stage.is_durable(0, 1)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    owner_dies_between_a_schema_and_its_rows: ("a schema is asked for anew", "durable up to"),
    store_takes_no_schema: ("rows come before their schema", "there is no stored schema for record"),
    registry_learns_a_schema_late: ("a schema is asked for anew", "rejected"),
    two_owners_of_two_registries: ("another content of a schema is taken", "B goes on by another schema"),
    format_changes_under_a_record: ("records without a schema are not given back", "holds"),
    registry_gives_an_id_away: ("schemas in use are not compared", "an id that was given away stops"),
}
