"""A lancewal table in a folder with production ingest and flusher in this process, and a dict that says what it holds.

``Pipeline.produce`` gives a record to the topic (lists in memory) and folds it into ``oracle``: by this module's own few
lines, not by the code under test.  ``ingest`` runs the worker until everything is durable, ``merge`` a flusher's round.
"""

from __future__ import annotations

import base64
import copy
import datetime
import decimal
import json
import random
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import lance
import pyarrow as pa

from lancewal_core.errors import Corrupt, LancewalError
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.names import paths
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.column_types import format_type
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.store.object_store import Done, put_once
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import Column, Contract, encode_contract, read_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.watermarks import NOTHING_MERGED, TABLE_UUID, Watermarks
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageReport, GarbageState, collect_garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundReport, RoundState, run_round
from lancewal_flusher.tasks.runner import ThreadRunner
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.context import IngestContext
from lancewal_ingest.decode.outcomes import Rejected
from lancewal_ingest.kafka.source import Offsets, Polled, PollListener, Positions
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.policy import MemoryPolicy, SealPolicy, WorkerLimits
from lancewal_ingest.service.worker import IngestWorker
from lancewal_kafka.records import Records
from lancewal_kafka.topic import TopicFacts
from tests.support.columns_by_hand import change_table, next_columns
from tests.support.regions import by_number, region
from tests.support.silent_observer import SilentObserver
from tests.support.stored_parts import StoredParts

Row = dict[str, Any]
Key = tuple[str, int]
Message = tuple[bytes, bytes, str]
"""Kafka key, value, operation."""

FIRST_MS = 1_700_000_000_000
"""Timestamp of the record with offset 0, where a test does not say otherwise; each later record has one more."""
_TURN_S = 0.01
KEY = [pa.field("region", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False)]
SMALL = pa.schema([*KEY, ("a", pa.int64()), ("s", pa.string())])
EVERY_TYPE = pa.schema(
    [
        *KEY,
        ("a", pa.int64()),
        ("s", pa.string()),
        ("ok", pa.bool_()),
        ("i8", pa.int8()),
        ("u8", pa.uint8()),
        ("u32", pa.uint32()),
        ("u64", pa.uint64()),
        ("f", pa.float64()),
        ("f4", pa.float32()),
        ("dec", pa.decimal128(12, 2)),
        ("bin", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("fine", pa.timestamp("ns", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("st", pa.struct([("x", pa.int32()), ("names", pa.list_(pa.string()))])),
        ("sts", pa.list_(pa.struct([("day", pa.date32()), ("n", pa.uint16())]))),
        ("vec", pa.list_(pa.float32(), 3)),
        ("bits", pa.list_(pa.uint8(), 4)),
    ]
)
LATER_TYPES = pa.schema(
    [
        *KEY,
        ("fix", pa.binary(3)),
        ("uid", pa.uuid()),
        ("t32", pa.time32("ms")),
        ("t64", pa.time64("us")),
        ("took", pa.duration("us")),
        ("ls", pa.large_string()),
        ("lb", pa.large_binary()),
        ("all", pa.list_(pa.struct([("f", pa.binary(9)), ("t", pa.time32("s")), ("d", pa.duration("s"))]))),
        ("one", pa.struct([("s", pa.large_string()), ("b", pa.list_(pa.large_binary()))])),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("maps", pa.list_(pa.map_(pa.string(), pa.map_(pa.string(), pa.float64())))),
        (
            "in",
            pa.struct(
                [("m", pa.map_(pa.string(), pa.struct([("t", pa.time64("us")), ("n", pa.int8())]))), ("x", pa.int8())]
            ),
        ),
    ]
)
"""Types that the first release does not have."""


@dataclass(slots=True)
class MemoryTopic:
    """A topic as lists, and a consumer of it that delivers a random number of records a poll.  Implements ``KafkaSource``."""

    partitions: int
    rng: random.Random
    messages: list[list[Message]]
    batch: int = 60
    record_ms: Callable[[int, int], int] = lambda _, offset: FIRST_MS + offset
    topic_id: str = "topic-id"
    topic: str = "orders"
    positions: dict[Region, int] = field(default_factory=dict)
    paused: set[Region] = field(default_factory=set)
    listener: PollListener | None = None
    assigned: bool = False

    def subscribe(self, listener: PollListener) -> None:
        self.listener = listener

    def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        if not self.assigned and self.listener is not None:
            self.assigned = True
            self.listener.assigned([region(p, self.topic, self.topic_id) for p in range(self.partitions)])
        delivered: dict[Region, Records] = {}
        for place, at in self.positions.items():
            count = 0 if place in self.paused else self.rng.randint(0, self.batch)
            taken = self.messages[place.partition][at : at + count]
            if taken:
                delivered[place] = Records(
                    offsets=list(range(at, at + len(taken))),
                    timestamps=[self.record_ms(place.partition, offset) for offset in range(at, at + len(taken))],
                    keys=[key for key, _, _ in taken],
                    values=[value for _, value, _ in taken],
                    headers=[None if op == "upsert" else [("lancewal.op", op.encode())] for _, _, op in taken],
                )
                self.positions[place] = at + len(taken)
        return Polled(delivered, {place: Position(at) for place, at in self.positions.items()})

    def start(self, region: Region, position: Position) -> None:
        self.positions[region] = position

    def stop(self, region: Region) -> None:
        self.positions.pop(region, None)

    def pause(self, regions: Sequence[Region]) -> None:
        self.paused |= set(regions)

    def resume(self, regions: Sequence[Region]) -> None:
        self.paused -= set(regions)

    def facts(self, topic: str) -> TopicFacts:
        return TopicFacts(self.topic_id, self.partitions)

    def offsets(self, region: Region) -> Offsets:
        return Offsets(Position(0), Position(len(self.messages[region.partition])))

    def offsets_of_each(self, regions: Collection[Region]) -> dict[Region, Offsets | LancewalError]:
        return {region: self.offsets(region) for region in regions}

    def commit_soon(self, positions: Positions, done: Callable[[bool], None]) -> None:
        done(self.commit(positions))

    def commit(self, positions: Positions) -> bool:
        return True

    def close(self) -> None: ...


class ShiftedClock(SystemClock):
    """The machine's clock, ``ahead_s`` seconds ahead."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.ahead_s * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


class NoDeadLetters:
    """Every record of these tests is good."""

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        raise AssertionError(f"{region.name}: {rejected}")


class Failures(SilentObserver):
    """What ingest could not do and tries again: errors, or texts."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def failed(self, act: str, cause: object) -> None:
        self.seen.append(cause)


class Pipeline:
    """See the module docstring."""

    def __init__(
        self,
        folder: Path,
        columns: pa.Schema = SMALL,
        *,
        partitions: int = 3,
        seed: int = 0,
        seal_rows: int = 60,
        batch: int = 60,
        observer: Observer | None = None,
        keyed_by: Callable[[str, int], bytes] | None = None,
        record_ms: Callable[[int, int], int] = lambda _, offset: FIRST_MS + offset,
        attached: Sequence[Row] = (),
        **contract: Any,
    ) -> None:
        """``keyed_by``: producers key by these bytes of their own, and the contract says so (``format.key: bytes``).
        ``record_ms``: the timestamp of a record, by its partition and offset.  ``attached``: rows from before the table was
        lancewal's."""
        self.uri = str(folder / "table")
        self.columns = columns
        self.rng = random.Random(seed)
        self._polls = random.Random(f"polls {seed}")
        """Of its own: how often a worker polls is a matter of time, and what is produced is none."""
        self.oracle: dict[Key, Row] = {(row["region"], row["id"]): {**self._nulls("", 0), **row} for row in attached}
        self.keyed_by = keyed_by
        self.record_ms = record_ms
        self._messages: list[list[Message]] = [[] for _ in range(partitions)]
        self._seal_rows = seal_rows
        self._batch = batch
        self._observer = observer or SilentObserver()
        self.clock = ShiftedClock()
        self._tasks: list[ThreadTasks] = []
        self.contract = self._made(partitions, attached, contract)
        self.store = open_store(self.uri)
        self.table = LanceTable(self.uri)
        self._rounds = RoundState()
        self._garbage = GarbageState()
        self._workers: list[IngestWorker] = []
        self._raised: list[object] = []
        self._worker = self._new_worker()

    def _made(self, partitions: int, attached: Sequence[Row], terms: Mapping[str, Any]) -> Contract:
        """Make the table and return its contract."""
        columns = self.columns
        lance.write_dataset(pa.Table.from_pylist(list(attached), columns), self.uri, schema=columns, mode="create")
        if attached:
            moment()  # points in time are milliseconds: one is of the time before the table was lancewal's
        lance.dataset(self.uri).update_config({TABLE_UUID: "table-uuid"})
        store, table = open_store(self.uri), LanceTable(self.uri)
        contract = Contract(
            table_uuid="table-uuid",
            topic_id="topic-id",
            partitions=partitions,
            primary_key=("region", "id"),
            columns=tuple(
                Column(name=f.name(), type=format_type(columns.field(f.name()).type), field_ids=tuple(_ids(f)))
                for f in lance.dataset(self.uri).lance_schema.fields()
            ),
            **{
                "topic": "orders",
                "on_bad_record": "stop",
                "start": (-1,) * partitions,
                "region_key": () if self.keyed_by else ("region",),
                "key_format": "bytes" if self.keyed_by else "canonical",
                **terms,
            },
        )
        Watermarks(store, table, None).record(NOTHING_MERGED, table.newest().version, "checkpoint")
        put = put_once(store, paths.contract_version(1, None), encode_contract(contract))
        assert isinstance(put, Done)
        return contract

    def copied(self, folder: Path) -> Pipeline:
        """The same table and topic at another place, with nothing in memory but what was produced."""
        other = copy.copy(self)
        shutil.copytree(self.uri, folder / "table")
        other.uri = str(folder / "table")
        other.store, other.table = open_store(other.uri), LanceTable(other.uri)
        other.rng, other._polls = copy.deepcopy(self.rng), copy.deepcopy(self._polls)
        other.oracle, other._messages = dict(self.oracle), [list(sent) for sent in self._messages]
        other._tasks, other._rounds, other._garbage = [], RoundState(), GarbageState()
        other._worker = other._new_worker()
        return other

    # -- what is in the topic ------------------------------------------------------------------------------------

    def upsert(self, region: str, id: int, **values: Any) -> None:
        self._send("upsert", region, id, values)
        self.oracle[region, id] = {**self._nulls(region, id), **values}

    def patch(self, region: str, id: int, **values: Any) -> None:
        self._send("patch", region, id, values)
        self.oracle[region, id] = {**self.oracle.get((region, id), self._nulls(region, id)), **values}

    def delete(self, region: str, id: int) -> None:
        self._send("delete", region, id, {})
        self.oracle.pop((region, id), None)

    def change_columns(
        self,
        changes: Mapping[str, str | None] = MappingProxyType({}),
        added: Mapping[str, str] = MappingProxyType({}),
        **terms: Any,
    ) -> None:
        """Change columns as ``lancewal table alter`` does.  ``changes`` has new names by the old ones, None for a column that
        is dropped; ``added`` has types, each perhaps with a default: ``string = "none"``.  ``terms`` are others.

        Producers write by the new columns from now on.  Workers at work hear of it by themselves."""
        before = self.contract
        self.contract = next_columns(before, changes, added, **terms)
        change_table(self.store, self.table, self.contract)
        self.columns = self.contract.rows.table
        for row in self.oracle.values():
            old = dict(row)
            row.clear()
            row.update({new: value for name, value in old.items() if (new := changes.get(name, name)) is not None})
            row.update(dict.fromkeys(added))

    def produce(self, count: int, regions: int = 12, ids: int = 30) -> None:
        """Random operations on random keys."""
        rng = self.rng
        columns = [f for f in self.columns if f.name not in ("region", "id")]
        for _ in range(count):
            region, id = f"r{rng.randrange(regions)}", rng.randrange(ids)
            match rng.choice(["upsert", "upsert", "patch", "patch", "delete"]):
                case "upsert":
                    chosen = [f for f in columns if rng.random() < 0.7]
                    self.upsert(region, id, **{f.name: random_value(rng, f.type) for f in chosen})
                case "patch":
                    chosen = [f for f in columns if rng.random() < 0.4]
                    self.patch(region, id, **{f.name: random_value(rng, f.type) for f in chosen})
                case _:
                    self.delete(region, id)

    # -- what the services do ------------------------------------------------------------------------------------

    def ingest(self) -> None:
        """Run the worker until everything produced is durable."""
        assert self.ingest_for(240), f"not durable: {self._worker.durable}, stopped {self._worker.stopped}"

    def ingest_for(self, timeout_s: float) -> bool:
        """Run the worker until everything produced is durable, or for so long; whether it is.  ``Corrupt``: what a partition
        that cannot be opened waits for."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            self._worker.step(0)
            for error in self._worker.refused.values():
                if isinstance(error, Corrupt) and error.where.get("object") not in self._raised:
                    self._raised.append(error.where.get("object"))
                    raise error  # the worker waits for somebody who repairs that
            if self._quiet() and self._reached(self._worker.durable):
                return True
            self._let_work()
        return False

    def _reached(self, positions: Positions) -> bool:
        """Whether these are the ends of all partitions."""
        at = by_number(positions)
        return all(at.get(partition, 0) == len(sent) for partition, sent in enumerate(self._messages))

    def _let_work(self) -> None:
        """Wait a moment for what the worker has begun, once it has all records: turns of its loop would only take the
        interpreter from its threads."""
        if self._reached(self._worker.consumed):
            self._worker._beside.wait(_TURN_S)

    def _quiet(self) -> bool:
        """Nothing is on its way but flushes."""
        return self._worker.idle and not self._worker._sealing.running

    def ingest_of(self, partition: int, timeout_s: float = 240) -> bool:
        """Run the worker until this partition's records are durable, and what was sealed is flushed; whether they are."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            self._worker.step(0)
            durable = by_number(self._worker.durable).get(partition, 0) == len(self._messages[partition])
            if durable and not self._worker._sealing.running and not len(self._worker._flushes):
                return True
            self._let_work()
        return False

    def merged(self) -> dict[Region, Position]:
        """Up to where the newest version of the table has each region."""
        in_force = Watermarks(self.store, self.table, self.contract.making).newest()[1]
        return {region: in_force.position(region) or Position(0) for region in self.contract.regions}

    def replace_worker(self) -> None:
        """Go on with another worker; the old one is simply not called again."""
        self._worker = self._new_worker()

    def crash(self) -> None:
        """Another worker makes everything durable."""
        self.replace_worker()
        self.ingest()

    def take_up_contract(self) -> None:
        """Go on by the newest contract: of a topic made anew, which has no record yet, or of one with more partitions."""
        contract = read_contract(self.store, self.uri)
        kept = self._messages if contract.topic_id == self.contract.topic_id else []
        self._messages = [*kept, *([] for _ in range(contract.partitions - len(kept)))]
        self.contract = contract
        self._rounds, self._garbage = RoundState(), GarbageState()
        self.replace_worker()

    def settle(self) -> None:
        """Wait until what was sealed is flushed, also by workers that have crashed: nothing is written from then on."""
        for worker in self._workers:
            for task in (*(page.task for page in worker._sealing._pages.values()), worker._bundling._task):
                if task is not None:
                    task.wait(240)
            for flight in worker._flushes._flights:
                if flight.task is not None:
                    flight.task.wait(240)
                    for swap in flight.task.result().swaps:
                        swap.wait(240)
        end = time.monotonic() + 240
        while self._worker._sealing.running or len(self._worker._flushes):
            assert time.monotonic() < end
            self._worker.step(0.01)

    def hand_over(self) -> None:
        """Stop the worker in order (everything is FLUSHED then) and start another."""
        assert self._worker.drain(240)
        self._worker = self._new_worker()

    def merge(self, limits: MergeLimits | None = None, sealed_grace_s: float = 0.0) -> RoundReport:
        """One round of a flusher.  Raises what of a region is damaged."""
        report = run_round(self.flusher(), limits or MergeLimits(), self._rounds, sealed_grace_s)
        report.raise_held()
        return report

    def collect(self) -> GarbageReport:
        """One garbage collection of a flusher that remembers its earlier ones."""
        return collect_garbage(self.flusher(), self._garbage)

    def merge_all(self, limits: MergeLimits | None = None) -> None:
        """Everything produced so far goes into the table."""
        self.ingest()
        self.hand_over()
        self.merge(limits)
        self.ingest()

    def append_by_hand(self, rows: Sequence[Row]) -> None:
        """What a user appends to the table with plain Lance."""
        lance.write_dataset(pa.Table.from_pylist(list(rows), self.columns), self.uri, mode="append")
        for row in rows:
            self.oracle[row["region"], row["id"]] = {**self._nulls(row["region"], row["id"]), **row}

    def messages(self, partition: int) -> Sequence[Message]:
        """What was produced to a partition, by offset."""
        return self._messages[partition]

    def fold_at(self, cut: Mapping[Region, Position]) -> dict[Key, Row]:
        """What the records below a cut make of an empty table; by these lines alone."""
        found: dict[Key, Row] = {}
        for place, position in cut.items():
            for message in self.messages(place.partition)[:position]:
                self.fold(found, message)
        return found

    def fold(self, rows: dict[Key, Row], message: Message) -> None:
        """Apply one record to rows."""
        _, value, op = message
        row: Row = json.loads(value)
        key = (row["region"], row["id"])
        nulls: Row = dict.fromkeys(self.columns.names)
        if op == "delete":
            rows.pop(key, None)
        else:
            rows[key] = {**(rows.get(key, nulls) if op == "patch" else nulls), **row}

    def close(self) -> None:
        for tasks in self._tasks:
            tasks.close()

    def objects(self, suffix: str) -> list[Path]:
        """Objects of lancewal's own folder whose name ends so."""
        return sorted(p for p in (Path(self.uri) / "_lancewal").rglob(f"*{suffix}") if p.is_file())

    def _send(self, op: str, region: str, id: int, values: Row) -> None:
        self.produced(op, region, id, {n: as_json(v, self.columns.field(n).type) for n, v in values.items()})

    def produced(self, op: str, region: str, id: int, members: Mapping[str, Any]) -> None:
        """Give a record with these members to the topic, whatever columns there are; the caller folds it into ``oracle``."""
        value = {"region": region, "id": id, **members}
        key = self.keyed_by(region, id) if self.keyed_by else encode_region_key(region)
        partition = partition_of(key, len(self._messages))
        self._messages[partition].append((key, json.dumps(value).encode(), op))

    def _nulls(self, region: str, id: int) -> Row:
        return {**dict.fromkeys(self.columns.names), "region": region, "id": id}

    def flusher(self) -> FlusherContext:
        """What a flusher of this table works on."""
        opened = self._opened()
        keys = KeyIndex(KeyCatalogs(self.store, self.clock, self.contract.making), StoredParts(self.store))
        return FlusherContext(*opened.parts, keys, ThreadRunner(self.table, opened.tasks), lambda: uuid.uuid4().hex)

    def _opened(self) -> OpenedTable:
        return OpenedTable.over(self.store, self.table, self.contract, self._new_tasks(), self.clock)

    def _new_tasks(self) -> ThreadTasks:
        self._tasks.append(ThreadTasks(workers=3))
        return self._tasks[-1]

    def _new_worker(self) -> IngestWorker:
        context = IngestContext(*self._opened().parts, lambda: uuid.uuid4().hex)
        topic = self.contract.topic
        topic_id = self.contract.topic_id
        source = MemoryTopic(
            len(self._messages), self._polls, self._messages, self._batch, self.record_ms, topic_id, topic
        )
        worker = IngestWorker(
            context,
            source,
            NoDeadLetters(),
            Preparer(self.contract),
            OwnerId(f"owner-{uuid.uuid4().hex[:6]}"),
            self._observer,
            SealPolicy(rows=self._seal_rows),
            MemoryPolicy(),
            WorkerLimits(linger_s=0.0, retry_s=0.01, damaged_s=0.1),
        )
        worker.subscribe()
        self._workers.append(worker)
        return worker


def moment() -> int:
    """Now; whatever comes later carries a later time."""
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= now:
        pass
    return now


def by_key(rows: pa.Table) -> dict[Key, Row]:
    """Rows by key; a key that is there twice is an error."""
    found = {(row["region"], row["id"]): row for row in rows.to_pylist()}
    assert len(found) == rows.num_rows, "a key shows twice"
    return found


def random_value(rng: random.Random, type_: pa.DataType, null: float = 0.2) -> Any:
    """A value, often null, that JSON carries exactly."""
    if rng.random() < null:
        return None
    if pa.types.is_boolean(type_):
        return rng.random() < 0.5
    if pa.types.is_integer(type_):
        bits = type_.bit_width
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if pa.types.is_signed_integer(type_) else (0, 2**bits)
        return rng.choice([low, high - 1, rng.randrange(max(low, -9), 10)])
    if pa.types.is_floating(type_):
        return rng.choice([0.0, 0.5, 0.75, -1.5, rng.randrange(-400, 400) / 8])
    if pa.types.is_decimal128(type_):
        return decimal.Decimal(rng.randrange(-(10**6), 10**6)).scaleb(-type_.scale)
    if pa.types.is_map(type_):
        names = rng.sample(["", "a", "b", "ähre", "z.`"], rng.randrange(4))
        return [(name, random_value(rng, type_.item_type)) for name in names]
    if type_ == pa.uuid():
        return rng.choice([uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID(int=rng.getrandbits(128))])
    if pa.types.is_fixed_size_binary(type_):
        return rng.choice([bytes(type_.byte_width), b"\xff" * type_.byte_width, rng.randbytes(type_.byte_width)])
    if pa.types.is_time(type_):
        ticks = {"s": 1, "ms": 10**3, "us": 10**6}[type_.unit]
        at = rng.choice([0, 86_400 * ticks - 1, rng.randrange(86_400 * ticks)]) * (10**6 // ticks)
        return (datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=at)).time()
    if pa.types.is_duration(type_):
        return rng.choice([-1, 0, 1]) * datetime.timedelta(seconds=rng.randrange(10**9))
    if type_ in (pa.string(), pa.large_string()):
        return rng.choice(["", "a'b", "ähre", "x" * 40, f"s{rng.randrange(100)}"])
    if type_ in (pa.binary(), pa.large_binary()):
        return rng.choice([b"", b"\x00\xff", rng.randbytes(5)])
    if pa.types.is_date32(type_):
        return datetime.date(1960, 1, 1) + datetime.timedelta(days=rng.randrange(40_000))
    if pa.types.is_timestamp(type_):
        zone = None if type_.tz is None else datetime.UTC
        return datetime.datetime(1965, 1, 1, tzinfo=zone) + datetime.timedelta(microseconds=rng.randrange(2**51))
    if pa.types.is_fixed_size_list(type_):
        return [random_value(rng, type_.value_type, 0) for _ in range(type_.list_size)]
    if pa.types.is_list(type_):
        return [random_value(rng, type_.value_type) for _ in range(rng.randrange(4))]
    return {member.name: random_value(rng, member.type) for member in type_}


def as_json(value: Any, type_: pa.DataType) -> Any:
    """The JSON form that producers write."""
    if value is None:
        return None
    if pa.types.is_decimal128(type_):
        return str(value)
    if pa.types.is_map(type_):
        return {key: as_json(item, type_.item_type) for key, item in value}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, uuid.UUID):
        return str(value)
    if pa.types.is_duration(type_):
        return value // datetime.timedelta(**{{"s": "seconds", "us": "microseconds"}[type_.unit]: 1})
    if pa.types.is_date32(type_) or pa.types.is_timestamp(type_) or pa.types.is_time(type_):
        return value.isoformat()
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return [as_json(item, type_.value_type) for item in value]
    if pa.types.is_struct(type_):
        return {member.name: as_json(value[member.name], member.type) for member in type_}
    return value


def _ids(field: Any) -> list[int]:
    return [field.id(), *(i for child in field.children() for i in _ids(child))]
