"""Keys name schemas: another schema comes, two members meet two at once, and an owner dies when it has taken the first."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from lancewal_core.names import paths
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import Op
from lancewal_core.table.contract import decode_contract
from lancewal_core.wal.segment import Segment, decode_segment
from tests.simulation.checker import require
from tests.simulation.oracle import Record
from tests.simulation.script import Crashed, crash
from tests.simulation.stage import Member, Stage
from tests.support.fake_registry import JSON, FakeRegistry
from tests.twins.sim_clock import EPOCH_MS


def key_of(k: int, schema: int) -> bytes:
    return b"\0" + schema.to_bytes(4) + json.dumps({"k": k}).encode()


class KeyFormStage(Stage):
    """A stage whose keys are JSON behind a frame.  It follows the contracts that members put."""

    def __init__(self) -> None:
        super().__init__(key_format="json-schema")
        self.registry = FakeRegistry(id_7=JSON, id_8=JSON)
        self.alter(format=2, on_wrong_format="dead-letter")
        self.bucket.told.append(self._stored_object)

    def _stored_object(self, key: str, data: bytes) -> None:
        if paths.parse_contract_version(key) is not None:
            self.altered(decode_contract(data, key))
        elif key.startswith(paths.wal_prefix()) and isinstance(found := decode_segment(data, key), Segment):
            rows = sum(entry.row_count for entry in found.entries)
            require(not rows or bool(self.contract.key_forms), "rows come before the first form of keys")

    def misroutes(self, schema: int, partition: int) -> None:
        """A record in this partition, whose key names this schema and belongs to the other partition."""
        k = next(k for k in range(1000) if partition_of(key_of(k, schema), 2) != partition)
        value = json.dumps({"k": k, "a": None}).encode()
        self.topic.append(
            partition, lambda offset: Record(offset, EPOCH_MS, key_of(k, schema), value, None, None, k, {})
        )

    def sends(self, schema: int, partition: int, k: int | None = None, op: Op | None = Op.UPSERT) -> int:
        """A record whose key names this schema, of a ``k`` with such a key in the partition; ``op`` is None if its row must
        be that of another key."""
        if k is None:
            taken = {record.k for log in self.topic.partitions for record in log.records}
            k = next(k for k in range(1000) if partition_of(key_of(k, schema), 2) == partition and k not in taken)
        now_ms = EPOCH_MS + int(self.scheduler.now * 1000) + 1
        value = None if op is Op.DELETE else json.dumps({"k": k if op is not None else k + 1, "a": f"a{k}"}).encode()
        values: dict[str, object] = {"a": f"a{k}", "b": None} if op is Op.UPSERT else {}
        self.topic.append(
            partition, lambda offset: Record(offset, now_ms, key_of(k, schema), value, None, op, k, values)
        )
        return k

    def later(self, *members: Member) -> None:
        for _ in range(6):
            self.scheduler.now += 0.4
            for member in members:
                self.step(member)

    def kinds(self, *members: Member) -> dict[int, str]:
        """The kinds by which partitions have stopped."""
        return {r.partition: error.kind for member in members for r, error in member.worker.stopped.items()}

    def is_durable(self, *ends: int) -> None:
        found = tuple(self.acknowledged.get(partition, 0) for partition in range(2))
        require(found == ends, "durable up to", found)
        self.checker.check(self.acknowledged)


def key_gets_another_schema() -> None:
    """The key of a row gets another schema, and lies in another partition then.  Nobody takes its record."""
    stage = KeyFormStage()
    a = stage.member("a", 0, 1)
    moved = next(k for k in range(1000) if [partition_of(key_of(k, s), 2) for s in (7, 8)] == [0, 1])
    stage.sends(7, 0, moved)
    stage.later(a)
    stage.sends(8, 1, moved, Op.DELETE)
    stage.sends(7, 1)
    stage.sends(7, 0)
    stage.later(a)
    require(stage.kinds(a) == {1: "key_form_changed"}, "a record under another schema of keys is taken", stage.kinds(a))
    stage.is_durable(2, 0)
    stage.seal(a)
    stage.round(stage.flusher("f"))
    stage.check_table()


def person_accepts_a_schema_of_keys() -> None:
    """Records of two schemas come in turn.  The partition stops once, and goes on when a person says that no key moves."""
    stage = KeyFormStage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    for schema in (7, 8, 7, 8):
        stage.sends(schema, 0)
    stage.later(a)
    require(stage.kinds(a) == {0: "key_form_changed"}, "stopped:", stage.kinds(a))
    stage.is_durable(1, 0)
    stage.alter(key_forms=("id-7", "id-8"))
    stage.take_up(a)
    stage.later(a)
    require(not stage.kinds(a), "stopped, though the form was accepted:", stage.kinds(a))
    stage.is_durable(4, 0)
    stage.sends(8, 0)
    stage.take_over(a, b, 0, 1)
    stage.later(b)
    stage.is_durable(5, 0)


def two_members_meet_two_schemas() -> None:
    """A and B each meet the table's first key, under two schemas, at once.  One form is taken, and the other one stops."""
    stage = KeyFormStage()
    a, b = stage.member("a", 0), stage.member("b", 1)

    def first() -> None:
        stage.sends(8, 1)
        stage.later(b)

    a.script.before("put", "/contract/", first)
    stage.sends(7, 0)
    stage.later(a)
    found = stage.kinds(a, b)
    require(found == {0: "key_form_changed"}, "two members take two forms of keys:", found)
    require(stage.contract.key_forms == ("id-8",), "forms:", stage.contract.key_forms)
    stage.is_durable(0, 1)


def owner_dies_when_it_has_taken_a_form() -> None:
    """A dies between the contract and its entry.  B opens the partition, and the other one has a record of another form."""
    stage = KeyFormStage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    a.script.before("put", paths.wal_prefix(), crash)
    stage.sends(7, 0)
    with suppress(Crashed):
        stage.later(a)
        raise AssertionError("A was to die")
    require(stage.contract.key_forms == ("id-7",), "forms:", stage.contract.key_forms)
    stage.sends(8, 1)
    stage.take_over(a, b, 0, 1)
    stage.later(b)
    require(stage.kinds(b) == {1: "key_form_changed"}, "stopped:", stage.kinds(b))
    stage.is_durable(1, 0)


def schema_of_keys_changes_when_all_is_trimmed() -> None:
    """No record and no segment of the first form is left, and the member is new.  The contract still lists that form."""
    stage = KeyFormStage()
    a, f, b = stage.member("a", 0, 1), stage.flusher("f"), stage.member("b")
    stage.sends(7, 0)
    stage.later(a)
    stage.seal(a)
    stage.round(f)
    stage.scheduler.now += 2 * stage.settings.history_window_s
    stage.collect(f)
    stage.topic.partitions[0].low = 1
    stage.sends(8, 0)
    stage.take_over(a, b, 0, 1)
    stage.later(b)
    require(stage.kinds(b) == {0: "key_form_changed"}, "stopped:", stage.kinds(b))
    stage.check_table()


def first_key_is_another_row_s() -> None:
    """The first record has the key of another row, under a schema of its own.  It is a dead letter, and names no form."""
    stage = KeyFormStage()
    a = stage.member("a", 0, 1)
    stage.sends(8, 0, op=None)
    stage.sends(7, 0)
    stage.later(a)
    require(stage.contract.key_forms == ("id-7",), "a stray key names the form:", stage.contract.key_forms)
    stage.is_durable(2, 0)


def first_key_is_misrouted() -> None:
    """The first record lies in a wrong partition, under a schema of its own.  It is a dead letter, and names no form."""
    stage = KeyFormStage()
    stage.alter(on_misrouted="dead-letter")
    a = stage.member("a", 0, 1)
    stage.misroutes(8, 0)
    stage.sends(7, 0)
    stage.later(a)
    require(stage.contract.key_forms == ("id-7",), "a misrouted key names the form:", stage.contract.key_forms)
    stage.is_durable(2, 0)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    key_gets_another_schema: (
        "a record of another key form is taken",
        "a record under another schema of keys is taken",
    ),
    two_members_meet_two_schemas: ("a member takes its own first form", "two members take two forms of keys"),
    owner_dies_when_it_has_taken_a_form: ("rows come before the form of their keys", r"forms: \(\)"),
    first_key_is_misrouted: ("a misrouted key names the first form", "a misrouted key names the form"),
    first_key_is_another_row_s: ("a stray key names the first form", "a stray key names the form"),
}

ACCIDENTS: list[Callable[[], None]] = [person_accepts_a_schema_of_keys, schema_of_keys_changes_when_all_is_trimmed]
