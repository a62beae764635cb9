"""A real Lance table in a folder, fed as ingest feeds it, with a dict as the model of what it must hold.

``FlusherTable.generation`` folds operations into the model and makes a FLUSHED (or SEALED) generation of a region through
production code: WAL segment, seal, flush.  Beside it stand the things that users do to their table; each changes the
model only where the table's contents shall change.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import lance
import pyarrow as pa

from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.flush import flush_generations
from lancewal_core.region.flush_files import Content, Flushable
from lancewal_core.region.flushes.manifest import FlushedGeneration, read_flushed_generation
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.region.transitions import Claimant, claim, first_claim, seal
from lancewal_core.rows.column_types import format_type, parse_type
from lancewal_core.rows.fold import fold
from lancewal_core.rows.schema import Op
from lancewal_core.store.object_store import Done, put_once
from lancewal_core.store.obstore import open_store
from lancewal_core.table.columns.changes import Widened
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.contract import Column, Contract, encode_contract, newest_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import (
    ColumnsCommit,
    CommitLost,
    CommitOutcome,
    Committed,
    TableCommit,
    fragment_files,
)
from lancewal_core.table.watermarks import NOTHING_MERGED, TABLE_UUID, Watermarks
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.writer import Durable, LogWriter
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundReport, RoundState, run_round
from lancewal_flusher.tasks.runner import ThreadRunner
from tests.support.flushes import flush_from_log
from tests.support.indexes import newest_state
from tests.support.stored_parts import StoredParts

COLUMNS = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
OPEN_ROWS = MergeLimits(adopt_rows=1)
"""Adopt whatever comes."""
COMBINE = MergeLimits(adopt_rows=1_000_000, adopt_small_max=0)
"""Combine whatever waits, also if it is one generation."""

Row = dict[str, Any]
Key = tuple[Any, ...]
"""Values of the primary key's columns, in its order."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One record: ``values`` without the key; of a patch, the columns it carries."""

    op: Op
    id: Any
    """What of the key the partition does not say."""
    values: Mapping[str, Any] = field(default_factory=dict)


def upsert(id: int, a: int | None = None, s: str | None = None, tags: Sequence[str] | None = None) -> Operation:
    return Operation(Op.UPSERT, id, {"a": a, "s": s, "tags": tags})


def patch(id: int, **values: Any) -> Operation:
    return Operation(Op.PATCH, id, values)


def delete(id: int) -> Operation:
    return Operation(Op.DELETE, id)


def upserts(ids: Iterable[int], a: int = 0) -> list[Operation]:
    return [upsert(id, a=a, s=f"s{id}", tags=[f"t{id}"]) for id in ids]


class ScriptedTable(LanceTable):
    """A table whose commits meet what a test has scripted, one act a commit."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.before: list[Callable[[], object]] = []
        """Run between plan and commit."""
        self.lose_request = 0
        """Commits that never arrive."""

    def commit(self, commit: TableCommit) -> CommitOutcome:
        if self.before:
            self.before.pop(0)()
        if self.lose_request:
            self.lose_request -= 1
            return CommitLost("the request was lost")
        return super().commit(commit)


class FlusherTable:
    """See the module docstring.  The region key of partition p is the text ``r<p>``."""

    def __init__(
        self,
        folder: Path | str,
        partitions: int = 2,
        *,
        columns: pa.Schema = COLUMNS,
        primary_key: tuple[str, ...] = ("region", "id"),
        stable_row_ids: bool = False,
        more: Sequence[pa.Field] = (),
        keyed_by_bytes: bool = False,
        storage: Mapping[str, str] | None = None,
        file_format: Any = None,
        **contract: Any,
    ) -> None:
        """``folder``: local, or the address of a folder in the store that ``storage`` opens.  ``more``: columns behind
        ``columns``.  ``keyed_by_bytes``: a key may come through any partition.  ``file_format``: Lance's; None: the one
        that it chooses."""
        self.uri = f"{folder}/table"
        self._storage = dict(storage or {})
        columns = pa.schema([*columns, *more])
        lance.write_dataset(
            columns.empty_table(),
            self.uri,
            schema=columns,
            mode="create",
            enable_stable_row_ids=stable_row_ids,
            storage_options=self._storage,
            data_storage_version=file_format,
        )
        self.dataset.update_config({TABLE_UUID: "uuid-1"})
        self.store = open_store(self.uri, self._storage)
        self.contract = Contract(
            table_uuid="uuid-1",
            topic="orders",
            topic_id="topic-id-1",
            partitions=partitions,
            primary_key=primary_key,
            region_key=() if keyed_by_bytes else primary_key[:1],
            key_format="bytes" if keyed_by_bytes else "canonical",
            start=(0,) * partitions,
            columns=tuple(
                Column(name=f.name(), type=format_type(columns.field(f.name()).type), field_ids=tuple(_ids(f)))
                for f in self.dataset.lance_schema.fields()
            ),
            **contract,
        )
        table = LanceTable(self.uri, self._storage)
        Watermarks(self.store, table, None).record(NOTHING_MERGED, table.newest().version, "checkpoint")
        assert isinstance(put_once(self.store, paths.contract_version(1, None), encode_contract(self.contract)), Done)
        self.model: dict[Key, Row] = {}
        self._ids = itertools.count(1)
        self._clock = SystemClock()
        self.tasks = ThreadTasks()
        self._feeding = self.context()
        self._highest_id = max(self.contract.field_ids)
        self._owner = OwnerId("ingest-1")
        self._log = LogWriter(self.store, self._clock, LogId("log-1"), self._owner, self.contract.rows.wal)

    @property
    def dataset(self) -> Any:
        return lance.dataset(self.uri, storage_options=self._storage)

    @property
    def regions(self) -> tuple[Region, ...]:
        return self.contract.regions

    def new_id(self) -> str:
        return f"{next(self._ids):08x}"

    def context(self, table: LanceTable | None = None) -> FlusherContext:
        """A flusher that has just started."""
        table = table or LanceTable(self.uri, self._storage)
        opened = OpenedTable.over(self.store, table, self.contract, self.tasks, self._clock)
        keys = KeyIndex(KeyCatalogs(self.store, self._clock, None), StoredParts(self.store))
        return FlusherContext(*opened.parts, keys, ThreadRunner(table, self.tasks), self.new_id)

    def close(self) -> None:
        self.tasks.close()

    # -- what ingest does ----------------------------------------------------------------------------------------

    def generation(
        self,
        partition: int,
        operations: Sequence[Operation],
        *,
        flush: bool = True,
        segments: int = 1,
        of: int | None = None,
    ) -> None:
        """One more generation of a region, in the table's future: the model has it from now on.

        ``of``: the keys are those of another partition.
        """
        keyed = partition if of is None else of
        region = self.regions[partition]
        index = self._open(region)
        record = index.generations[-1]
        at = int(record.first)
        size = max(1, -(-len(operations) // segments))
        for start in range(0, len(operations), size):
            part = operations[start : start + size]
            first, next_ = Position(at), Position(at + len(part))
            stored = self._log.put(
                [Entry(region, first, next_, self.contract.version, self._batch(keyed, at, part), ())]
            )
            assert isinstance(stored, Durable)
            at = int(next_)
        claimant = Claimant(self._owner, self._log.log, self._log.next_unsent)
        ours, _ = self._feeding.states.swap(
            {
                region: lambda found: (
                    found
                    and seal(
                        found,
                        record.generation,
                        claimant,
                        Position(at),
                        self.new_id(),
                        hand_over=False,
                        record_times=None,
                        now_ms=self._clock.now_ms(),
                    )
                )
            }
        )[region]
        assert ours
        for operation in operations:
            self._apply(keyed, operation)
        if flush:
            self.flush(partition)

    def change_columns(self, changes: Mapping[str, str | None] = MappingProxyType({}), **added: str) -> None:
        """The next version of the contract, and of the table's columns: ``changes`` has new names by the old ones, None for
        a column that is dropped; ``added`` has types.  Columns keep their order, and those added come last."""
        pinned = LanceTable(self.uri, self._storage).newest()
        kept = [
            column.model_copy(update={"name": changes.get(column.name, column.name)})
            for column in self.contract.columns
            if changes.get(column.name, column.name) is not None
        ]
        for name, type_ in added.items():
            at = self._highest_id + 1
            ids = tuple(range(at, at + 1 + type_.count("list<") + type_.count(":")))
            self._highest_id = ids[-1]
            kept.append(Column(name=name, type=type_, field_ids=ids))
        version = self.contract.version + 1
        update = {
            "format": 2,
            "version": version,
            "columns": tuple(kept),
            "columns_change": f"{version}-{version:x}",
            "highest_field_id": self._highest_id,
        }
        self.contract = self.contract.model_copy(update=update)
        mark = self.contract.columns_change
        commit = ColumnsCommit(pinned.version, self.contract.rows.table, self.contract.fields_of, {}, mark)
        assert isinstance(LanceTable(self.uri, self._storage).change_columns(commit), Committed)
        key = paths.contract_version(self.contract.version, None)
        assert isinstance(put_once(self.store, key, encode_contract(self.contract)), Done)
        self._log.schema = self.contract.rows.wal
        self._feeding = self.context()
        for row in self.model.values():
            old = dict(row)
            row.clear()
            row.update(
                {new: value for name, value in old.items() if (new := changes.get(name, name)) is not None}
                | dict.fromkeys(added)
            )

    def ask_to_widen(self, name: str, type_: str, highest: int | None = None, now_ms: int = 0) -> None:
        """The next version of the contract asks for a wider column, whose ids are above ``highest``."""
        highest = self._highest_id if highest is None else highest
        change = Widened((name,), parse_type(type_))
        self.contract = changed(self.contract, [change], Surroundings(highest, {}, now_ms=now_ms), "1")
        self._highest_id = max(highest, self.contract.highest_field_id or 0)
        key = paths.contract_version(self.contract.version, None)
        assert isinstance(put_once(self.store, key, encode_contract(self.contract)), Done)
        self._feeding = self.context()

    def take_up(self) -> None:
        """Ingest works by the newest contract from now on."""
        newest = newest_contract(self.store)
        assert newest is not None
        self.contract = newest
        self._log.schema = newest.rows.wal
        self._feeding = self.context()

    def begin_anew(self) -> None:
        """Flushes are those of a process that has opened nothing yet."""
        self._feeding = replace(self._feeding, table=LanceTable(self.uri, self._storage))

    def flush(self, partition: int) -> FlushedGeneration:
        """The oldest SEALED generation becomes FLUSHED."""
        flushed = flush_from_log(replace(self._feeding, contract=self.contract), self.regions[partition], self.new_id)
        assert flushed is not None
        return flushed

    def flush_together(self, *partitions: int) -> list[FlushedGeneration]:
        """The oldest SEALED generation of each becomes FLUSHED, all in one flush."""
        opened = replace(self._feeding, contract=self.contract)
        flushable = []
        for partition in partitions:
            region = self.regions[partition]
            record = next(r for r in self.index(partition).generations if r.state is GenerationState.SEALED)
            entries = entries_of(opened, region, record)
            content = Content(fold([e.rows for e in entries], self.contract.rows))
            flushable.append(Flushable(region, record, content))
        found = [s for s in flush_generations(opened, flushable, self.new_id) if isinstance(s, FlushedGeneration)]
        assert len({flushed.key for flushed in found}) == 1
        assert len(found) == len(partitions)
        return found

    def generations(self, operations: Mapping[int, Sequence[Operation]]) -> list[FlushedGeneration]:
        """One more generation of each of these partitions, all in one flush."""
        for partition, some in operations.items():
            self.generation(partition, some, flush=False)
        return self.flush_together(*operations)

    def _open(self, region: Region) -> RegionState:
        state = self._feeding.states.read([region]).get(region)
        claimant = Claimant(self._owner, self._log.log, self._log.next_unsent)
        if state is None:
            self._feeding.states.swap({region: lambda _: first_claim(region, 1, Position(0), claimant, self.new_id())})[
                region
            ]
        elif state.generations[-1].next is not None:
            self._feeding.states.swap({region: lambda found: found and claim(found, None, 1, claimant, self.new_id())})[
                region
            ]
        opened = self._feeding.states.read([region]).get(region)
        assert opened is not None
        return opened

    def _batch(self, partition: int, first: int, operations: Sequence[Operation]) -> pa.RecordBatch:
        schema = self.contract.rows.wal
        names = self.contract.rows.table.names
        rows = []
        for offset, operation in enumerate(operations, first):
            carried = {**self._key_columns(partition, operation.id), **operation.values}
            bits = sum(1 << i for i, name in enumerate(names) if name in carried)
            present = bits.to_bytes(self.contract.rows.present_bytes, "little") if operation.op is Op.PATCH else None
            rows.append(
                {
                    **carried,
                    "_offset": offset,
                    "_timestamp": 1_000 + offset,
                    "_op": int(operation.op),
                    "_present": present,
                }
            )
        return pa.RecordBatch.from_pylist(rows, schema)

    def key(self, partition: int, id: Any) -> Key:
        """The primary key of an operation."""
        return (f"r{partition}", id)

    def _key_columns(self, partition: int, id: Any) -> Row:
        return dict(zip(self.contract.primary_key, self.key(partition, id), strict=True))

    def _apply(self, partition: int, operation: Operation) -> None:
        key = self.key(partition, operation.id)
        nothing = {**dict.fromkeys(self.contract.rows.table.names), **self._key_columns(partition, operation.id)}
        match operation.op:
            case Op.UPSERT:
                self.model[key] = {**nothing, **operation.values}
            case Op.PATCH:
                self.model[key] = {**self.model.get(key, nothing), **operation.values}
            case Op.DELETE:
                self.model.pop(key, None)

    # -- what the flusher does -----------------------------------------------------------------------------------

    def round(
        self, limits: MergeLimits = OPEN_ROWS, context: FlusherContext | None = None, grace_s: float = 0.0
    ) -> RoundReport:
        """One round of a flusher, by default of one that has just started.  Raises what of a region is damaged."""
        report = run_round(context or self.context(), limits, RoundState(), grace_s)
        report.raise_held()
        return report

    def take_away(self, prefix: str) -> dict[str, bytes]:
        """All objects below it; ``put_back`` takes them."""
        found = {info.key: self.store.get(info.key) or b"" for info in self.store.list(prefix)}
        self.store.delete(list(found))
        return found

    def put_back(self, objects: Mapping[str, bytes]) -> None:
        for key, data in objects.items():
            self.store.put_if_absent(key, data)

    def index(self, partition: int) -> RegionState:
        found = newest_state(self.store, self._clock, self.regions[partition], self.contract.regions_per_page)
        assert found is not None
        return found

    def states(self, partition: int) -> list[str]:
        """States of the generations that have ended, oldest first."""
        return [r.state.name for r in self.index(partition).generations if r.next is not None]

    def record(self, partition: int, generation: int) -> GenerationRecord:
        return next(r for r in self.index(partition).generations if r.generation == generation)

    def flushed(self, partition: int, generation: int) -> FlushedGeneration:
        key = self.record(partition, generation).flush
        assert key is not None
        return read_flushed_generation(self.store, key, self.regions[partition], Generation(generation))

    def finished(self) -> list[int]:
        """Versions whose merge is marked as finished, oldest first."""
        found = [paths.parse_merge_finished(info.key) for info in self.store.list(paths.merges_prefix(None))]
        return sorted(v for v in found if v is not None)

    def recorded(self) -> list[int]:
        """Versions with a record of watermarks, oldest first."""
        found = [paths.parse_merge_record(info.key) for info in self.store.list(paths.merges_prefix(None))]
        return sorted(v for v in found if v is not None)

    # -- what users do -------------------------------------------------------------------------------------------

    def user_rows(self, partition: int, ids: Sequence[int], a: int = -1) -> pa.Table:
        return pa.Table.from_pylist(
            [{"region": f"r{partition}", "id": id, "a": a, "s": "user", "tags": None} for id in ids], COLUMNS
        )

    def user_append(self, partition: int, ids: Sequence[int], *, in_model: bool) -> None:
        """Append by hand; ``in_model``: the rows are to stay."""
        rows = self.user_rows(partition, ids)
        lance.write_dataset(rows, self.uri, mode="append")
        if in_model:
            self.model.update({(row["region"], row["id"]): row for row in rows.to_pylist()})

    def user_delete(self, partition: int, id: int) -> None:
        self.dataset.delete(f"region = 'r{partition}' and id = {id}")
        self.model.pop((f"r{partition}", id), None)

    def clean_up(self, *, delete_unverified: bool = False) -> None:
        """Remove all versions but the newest (and tagged ones)."""
        self.dataset.cleanup_old_versions(
            timedelta(0), delete_unverified=delete_unverified, error_if_tagged_old_versions=False
        )

    def remove_files(self, flushed: FlushedGeneration) -> None:
        """What a clean-up does to a flush's data files before a merge has adopted them."""
        for fragment in flushed.fragments:
            for name in fragment_files(fragment):
                (Path(self.uri) / "data" / name).unlink()

    # -- the oracle ----------------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """What a plain Lance reader sees."""
        found: list[Row] = self.dataset.to_table().to_pylist()
        return found

    def check(self) -> None:
        """The table holds exactly the model's rows, each key once."""
        rows = [(self._key_of(row), row) for row in self.rows()]
        twice = [key for key, count in Counter(key for key, _ in rows).items() if count > 1]
        assert not twice, f"keys more than once: {twice[:5]}"
        assert {key: exact(row) for key, row in rows} == {key: exact(row) for key, row in self.model.items()}

    def _key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.contract.primary_key)


class KeyedTable(FlusherTable):
    """A table of any columns and primary key: the ``id`` of an operation is the whole key.

    Its regions take whatever keys a test gives them; each key must come through one.
    """

    def key(self, partition: int, id: Any) -> Key:
        return tuple(id)


def exact(value: Any) -> Any:
    """A value that equals another one only if all bits do: -0.0 is not 0.0, and a NaN equals itself."""
    match value:
        case float():
            return value.hex() if value == value else struct.pack(">d", value).hex()
        case dict():
            return {name: exact(member) for name, member in value.items()}
        case list() | tuple():
            return [exact(item) for item in value]
    return value


def _ids(lance_field: Any) -> list[int]:
    return [lance_field.id(), *(i for child in lance_field.children() for i in _ids(child))]
