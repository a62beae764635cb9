"""Keys name schemas: another schema comes, two members meet two at once, and an owner dies when it has taken the first."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random

from lancewal_core.names import paths
from lancewal_core.names.ids import SchemaKey
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import Op
from lancewal_core.table.contract import decode_contract
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.commands.operator.accept_schema import accept_schema
from lancewal_ingest.registry.comparison import EVERY_S
from tests.simulation.checker import require
from tests.simulation.oracle import Record
from tests.simulation.script import Crashed, crash
from tests.simulation.stage import Member, Stage
from tests.support.fake_registry import JSON, FakeRegistry
from tests.twins.faults import PutFault
from tests.twins.sim_clock import EPOCH_MS

_SEVEN = SchemaKey("id-7")
_SEEDS = 12


def key_of(k: int, schema: int) -> bytes:
    return b"\0" + schema.to_bytes(4) + json.dumps({"k": k}).encode()


class KeyFormStage(Stage):
    """A stage whose keys are JSON behind a frame.  It follows the contracts that members put."""

    def __init__(self) -> None:
        super().__init__(key_format="json-schema")
        self.registry = self.fake = FakeRegistry(id_7=JSON, id_8=JSON, id_9=JSON)
        self.alter(format=2, on_wrong_format="dead-letter")
        self.bucket.told.append(self._stored_object)

    def _stored_object(self, key: str, data: bytes) -> None:
        if paths.parse_contract_version(key) is not None:
            self.altered(decode_contract(data, key))
        elif paths.parse_wal_segment(key) is not None and isinstance(found := decode_segment(data, key), Segment):
            for entry in found.entries:
                self._has_listed_forms(entry)

    def _has_listed_forms(self, entry: Entry) -> None:
        """The contract that the entry names lists the forms of its rows' keys."""
        key = paths.contract_version(entry.contract_version, self.contract.making)
        forms = decode_contract(self.bucket.get(key) or b"", key).key_forms
        for record in self.topic.partitions[entry.region.partition].between(entry.first, entry.next):
            if record.op is not None:
                require(bool(forms), "rows come before the first form of keys")
                form = f"id-{record.key[4]}"
                require(form in forms, "a record under another schema of keys is taken:", form, "beside", forms)

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
    a.script.before("put", paths.WAL, crash)
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


def person_accepts_another_text_of_a_schema() -> None:
    """The registry gives the number of the keys' schema to another text.  Keys keep their form when a person accepts it, also
    in a process that begins then."""
    stage = KeyFormStage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    for partition in range(2):
        stage.sends(7, partition)
    stage.later(a)
    stage.fake.has[_SEVEN] = WriterSchema("json-schema", '{"title": "another"}')
    stage.scheduler.now += 2 * EVERY_S
    stage.later(a)
    stage.sends(7, 0)
    stage.later(a)
    require(set(stage.kinds(a).values()) == {"schema_id_reused"}, "stopped:", stage.kinds(a))
    stage.is_durable(1, 1)
    accept_schema(replace(a.worker._context, contract=stage.contract), stage.fake, _SEVEN, {})
    stage.take_up(a)
    stage.sends(8, 1)
    stage.take_over(a, b, 0, 1)
    stage.later(b)
    require(stage.kinds(b) == {1: "key_form_changed"}, "stopped:", stage.kinds(b))
    require(stage.contract.key_forms == ("id-7",), "forms:", stage.contract.key_forms)
    stage.is_durable(2, 1)


def keys_of_two_schemas_in_any_order() -> None:
    """Members die and lose replies around contract and segment, while keys of two schemas come, good ones and others, and a
    person accepts forms.  Ingest takes one form by itself, and at last every record is durable."""
    for seed in range(_SEEDS):
        rng = Random(seed)
        stage = KeyFormStage()
        stage.alter(on_misrouted="dead-letter")
        owners = [stage.member("m0", 0), stage.member("m1", 1)]

        def the_other_one_is_first(stage: KeyFormStage = stage, owners: Sequence[Member] = owners) -> None:
            stage.sends(8, 1)
            owners[1].script.clear()  # one dies at a time
            stage.later(owners[1])

        if seed % 2:
            owners[0].script.before("put", "/contract/", the_other_one_is_first)
        accepted = set[str]()
        for turn in range(12):
            partition, schema, never_good = rng.randrange(2), rng.choice((7, 8)), 9
            match rng.choice(("good", "good", "delete", "misrouted", "stray", "accept", "die", "die", "lose")):
                case "good":
                    stage.sends(schema, partition)
                case "delete":
                    stage.sends(schema, partition, op=Op.DELETE)
                case "misrouted":
                    stage.misroutes(never_good, partition)
                case "stray":
                    stage.sends(never_good, partition, op=None)
                case "accept" if stage.contract.key_forms:
                    accepted.add(f"id-{schema}")
                    forms = dict.fromkeys([*stage.contract.key_forms, f"id-{schema}"])
                    stage.alter(key_forms=tuple(forms))
                    stage.take_up(owners[partition])
                case "die":
                    owners[partition].script.before("put", rng.choice(("/contract/", paths.WAL)), crash)
                case "lose":
                    owners[partition].script.puts.append(("/contract/", PutFault.REPLY_LOST))
            for place, owner in enumerate(owners):
                try:
                    stage.later(owner)
                except Crashed:
                    owners[place] = stage.member(f"m{place}-{turn}")
                    stage.take_over(owner, owners[place], place)
            stage.checker.check(stage.acknowledged)
            ours = {*stage.contract.key_forms} - accepted
            require(len(ours) <= 1 and f"id-{never_good}" not in ours, "forms:", stage.contract.key_forms)
        stage.alter(key_forms=("id-7", "id-8"))
        for owner in owners:
            owner.script.clear()
            stage.take_up(owner)
        stage.later(*owners)
        require(not stage.kinds(*owners), "stopped:", stage.kinds(*owners))
        stage.is_durable(*(len(log.records) for log in stage.topic.partitions))


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    key_gets_another_schema: (
        "a record of another key form is taken",
        "a record under another schema of keys is taken",
    ),
    two_members_meet_two_schemas: (
        "a member takes its own first form",
        "a record under another schema of keys is taken",
    ),
    owner_dies_when_it_has_taken_a_form: ("rows come before the form of their keys", r"forms: \(\)"),
    first_key_is_misrouted: ("a misrouted key names the first form", "a misrouted key names the form"),
    first_key_is_another_row_s: ("a stray key names the first form", "a stray key names the form"),
}

ACCIDENTS: list[Callable[[], None]] = [
    person_accepts_a_schema_of_keys,
    schema_of_keys_changes_when_all_is_trimmed,
    person_accepts_another_text_of_a_schema,
    keys_of_two_schemas_in_any_order,
]
