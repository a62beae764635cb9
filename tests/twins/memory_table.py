"""The in-memory twin of a Lance table: versions, fragments, deletion vectors, and Lance's own rules of conflict.

The rules (tried on the real library; the conformance suite holds both to them)

=============================  ==================================  ===========================================
committed since                our ``Update``                      our ``Merge`` (strict)
=============================  ==================================  ===========================================
Append                         rebased                             conflict
CreateIndex, UpdateConfig      rebased; conflict if the index is   rebased
                               over a column that it writes in
                               place
Update, Delete, Rewrite        conflict if a fragment that it      conflict
                               updated or removed is one of ours,
                               else rebased
Merge                          conflict                            conflict
Project                        rebased                             conflict
Overwrite, Restore             conflict                            conflict
=============================  ==================================  ===========================================

Our ``Rewrite`` (a commit with ``rewritten``) is treated as an ``Update`` of these fragments, but that a CreateIndex in
between is a conflict.  The one index covers fragments, by segments; extending it is a CreateIndex, which conflicts with a
rewrite in between.  It is over the first column unless a test says otherwise.  Columns of it that are written in place take
the fragments of that commit from what it covers.

Our ``Project`` (``change_columns``) is rebased over all of these but Project, Merge, Overwrite and Restore.  With fragments
it is a ``Merge``, and rebased over index builds and configuration alone.  A fragment says which fields each of its files
holds: those that have no fields within.  A version shows a field's values by its id, and nulls where no file has that.
A struct or list is null where no file holds a field within it.  Others who rename or drop columns and members make a
``Project``, and who add a column make a ``Merge`` without another condition than ours.

A rebased commit's transaction names as read version the one below it, not the one it was computed from.  A commit whose
read version was cleaned up conflicts; versions in between that are gone are not compared with.  New
fragments get their ids when they land.  Deletion vectors are files named by fragment id, so a *new* fragment that
brings one cannot be read afterwards.  The commit checks no data file.

Beside the ``StoredTable`` Protocol it has what users do to their tables: append, delete, compact, index, restore, overwrite,
tag, clean up.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lancewal_core.errors import ObjectCorrupt, ObjectMissing, StoreUnavailable, TableMissing, VersionGone
from lancewal_core.names.ids import TableVersion
from lancewal_core.rows.carry import Tree, tree_of
from lancewal_core.rows.column_types import parse_type
from lancewal_core.table.protocol import (
    COLUMNS_MARK,
    ROW_ADDRESS,
    AllBut,
    Branch,
    ColumnsCommit,
    CommitLost,
    CommitOutcome,
    Committed,
    Conflicted,
    Fragment,
    RewriteBounds,
    RewrittenFragments,
    RowNumbers,
    TableCommit,
    TableIndex,
    TransactionGone,
    TransactionInfo,
    TransactionResult,
    TransactionUnreadable,
    fragment_files,
    rows_of_fragments,
)
from tests.twins.faults import CommitFault, Faultless, Faults
from tests.twins.scheduler import Switch, no_switch

_RESERVE = "BaseOperation"
"""What the binding calls the version by which a compaction reserves fragment ids."""
_REBASED_OVER = {"CreateIndex", "UpdateConfig", _RESERVE}
_NO_PROJECT_OVER = {"Project", "Merge", "Overwrite", "Restore"}
_COMPARED = {"Update", "Delete", "Rewrite"}
_UNNAMED_MS = 7 * 24 * 3600 * 1000
"""So long a data file that no version names is left alone."""


@dataclass(frozen=True, slots=True)
class _Fragment:
    fragment_id: int
    file: str
    physical_rows: int
    fields: tuple[int, ...]
    """Ids of the fields that count in its file, of those that have no fields within."""
    vector: str | None = None
    """Name of its deletion vector."""
    deleted_rows: int = 0
    columns: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Files that were written for some columns since, each with the fields that count there."""

    @property
    def held(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Its files, with the fields that count in each."""
        return ((self.file, self.fields), *self.columns)

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.held)

    def with_columns(self, file: str, fields: tuple[int, ...]) -> _Fragment:
        """The fragment with a file more, whose fields count instead of those before."""
        left = [(name, tuple(i for i in own if i not in fields)) for name, own in self.held]
        return replace(self, fields=left[0][1], columns=(*(one for one in left[1:] if one[1]), (file, fields)))

    def json(self) -> str:
        deletion = None if self.vector is None else {"id": self.vector, "num_deleted_rows": self.deleted_rows}
        size = _file_bytes(self.physical_rows)
        return json.dumps(
            {
                "id": self.fragment_id,
                "files": [{"path": name, "fields": own, "file_size_bytes": size} for name, own in self.held],
                "deletion_file": deletion,
                "physical_rows": self.physical_rows,
            }
        )

    @staticmethod
    def parse(text: str) -> _Fragment:
        found = json.loads(text)
        file, *columns = found["files"]
        deletion = found["deletion_file"] or {"id": None, "num_deleted_rows": 0}
        return _Fragment(
            found["id"],
            file["path"],
            found["physical_rows"],
            tuple(file["fields"]),
            deletion["id"],
            deletion["num_deleted_rows"],
            tuple((f["path"], tuple(f["fields"])) for f in columns),
        )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of a version, with the ids of their fields."""

    schema: pa.Schema
    ids: Mapping[str, tuple[int, ...]]

    @staticmethod
    def first(schema: pa.Schema) -> _Columns:
        numbers = itertools.count()
        return _Columns(schema, {f.name: tuple(itertools.islice(numbers, _field_count(f.type))) for f in schema})

    def trees(self) -> tuple[Tree, ...]:
        return tuple(tree_of(field, self.ids[field.name]) for field in self.schema)

    def plain(self) -> tuple[int, ...]:
        """Ids of the fields that have no fields within."""
        return tuple(i for tree in self.trees() for i in _plain(tree))

    def with_trees(self, trees: Iterable[Tree]) -> _Columns:
        """These columns instead; each is as nullable as it is here."""
        old = {self.ids[field.name][0]: field for field in self.schema}
        trees = tuple(trees)
        fields = [pa.field(t.name, t.type, old[t.id].nullable if t.id in old else True) for t in trees]
        ids = {tree.name: tuple(inner.id for inner in tree.all()) for tree in trees}
        return _Columns(pa.schema(fields, self.schema.metadata), ids)


@dataclass(frozen=True, slots=True)
class _Version:
    number: int
    columns: _Columns
    fragments: tuple[_Fragment, ...]
    next_fragment_id: int
    config: Mapping[str, str]
    transaction: TransactionInfo
    touched: frozenset[int] = frozenset()
    """Fragments that existed before and were updated or removed."""
    readable: bool = True
    """Whether the binding can convert the transaction."""
    segments: tuple[frozenset[int], ...] = ()
    """Fragments that each segment of the index covers, oldest first."""
    indexed: str | None = None
    """The column that the index is over."""


@dataclass(slots=True)
class MemoryDataset:
    """What lies in the table's folder, shared by all clients."""

    first_schema: pa.Schema
    """Columns of the first version."""
    config: Mapping[str, str] = field(default_factory=dict)
    files: dict[str, pa.Table] = field(default_factory=dict)
    vectors: dict[tuple[int, str], frozenset[int]] = field(default_factory=dict)
    """By fragment id and name."""
    versions: dict[int, _Version] = field(default_factory=dict)
    landed: list[_Version] = field(default_factory=list)
    """Every version since the first, those that were cleaned up included."""
    tags: set[int] = field(default_factory=set)
    under_way: list[tuple[int, TableCommit]] = field(default_factory=list)
    """Commits that were sent and have not arrived, each with the version number that it writes."""
    indexed: bool = False
    written: int = 0
    now_ms: Callable[[], int] | None = None
    """When versions are stored; None: nobody asks."""
    stored_ms: dict[int, int] = field(default_factory=dict)
    clock_error_ms: Callable[[int], int] = lambda version: 0
    """By how much the clock is wrong of whoever commits a version."""
    written_ms: dict[str, int] = field(default_factory=dict)
    """When data files were written."""
    file_columns: dict[str, _Columns] = field(default_factory=dict)
    """Columns of each data file."""
    branches: dict[str, _Branched] = field(default_factory=dict)
    name: str = ""
    """Of a branch."""
    names_fault: ObjectCorrupt | None = None
    """What a name of a branch or tag that cannot be read is told as."""
    told: list[Callable[[int], None]] = field(default_factory=list)
    """Who is told of each version that lands, while the one before it is there."""

    def __post_init__(self) -> None:
        self.versions[1] = self.first
        if self.now_ms is not None:
            self.stored_ms[1] = self.now_ms()

    @property
    def first(self) -> _Version:
        """The version that made the table."""
        created = TransactionInfo("Overwrite", 0, {})
        return _Version(1, _Columns.first(self.first_schema), (), 0, dict(self.config), created)

    @property
    def newest(self) -> _Version:
        return self.versions[max(self.versions)]

    @property
    def schema(self) -> pa.Schema:
        """Columns of the newest version."""
        return self.newest.columns.schema

    def committed_ms(self, version: int) -> int:
        """When it was committed, by the clock of who did; where nobody asks for the time, versions follow one another."""
        return version if self.now_ms is None else self.stored_ms[version] + self.clock_error_ms(version)

    def new_name(self) -> str:
        self.written += 1
        return f"{self.name}{self.written:08d}"

    def branched(self, name: str, version: int) -> MemoryDataset:
        """A data set that begins at this version, and shares files."""
        made = MemoryDataset(
            self.first_schema, self.config, self.files, self.vectors, now_ms=self.now_ms, name=f"{name}-"
        )
        made.versions = {version: self.versions[version]}
        made.stored_ms = {version: 0 if self.now_ms is None else self.now_ms()}
        made.written_ms, made.file_columns = self.written_ms, self.file_columns
        return made

    def named(self) -> list[_Fragment]:
        """Fragments of all versions, and of those of branches."""
        own = [f for version in self.versions.values() for f in version.fragments]
        return own + [f for branch in self.branches.values() for f in branch.dataset.named()]

    def held(self) -> set[int]:
        """Versions that a tag or a branch needs."""
        return self.tags | {branch.version for branch in self.branches.values()}

    def write(self, rows: pa.Table, ids: Mapping[str, Sequence[int]] | None = None) -> _Fragment:
        """A data file that no version refers to."""
        name = f"{self.new_name()}.lance"
        columns = self.newest.columns
        if ids is None:
            ids, rows = columns.ids, rows.cast(pa.schema([columns.schema.field(n) for n in rows.column_names]))
        found = self._put(name, rows, ids)
        if self.now_ms is not None:
            self.written_ms[name] = self.now_ms()
        return _Fragment(0, name, rows.num_rows, found)

    def _put(self, name: str, rows: pa.Table, ids: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
        """Put a file, and return its fields that have none within."""
        columns = _Columns(rows.schema, {n: tuple(ids[n]) for n in rows.column_names})
        self.files[name], self.file_columns[name] = rows.combine_chunks(), columns
        return columns.plain()

    def write_columns(self, fragment: _Fragment, rows: pa.Table, ids: Mapping[str, Sequence[int]]) -> _Fragment:
        """Write a file of columns, and return the fragment with it."""
        name = f"{self.new_name()}.lance"
        return fragment.with_columns(name, self._put(name, rows, ids))

    def add(
        self,
        read_version: int,
        operation: str,
        fragments: Iterable[_Fragment],
        new: Iterable[_Fragment] = (),
        touched: Iterable[int] = (),
        properties: Mapping[str, str] | None = None,
        config: Mapping[str, str] | None = None,
        readable: bool = True,
        segments: tuple[frozenset[int], ...] | None = None,
        restored: int | None = None,
        indexed: str | None = None,
        columns: _Columns | None = None,
        rewritten: tuple[RewrittenFragments, ...] = (),
    ) -> int:
        """The next version."""
        newest = self.newest
        at = newest.next_fragment_id
        numbered = [replace(f, fragment_id=at + i) for i, f in enumerate(new)]
        version = _Version(
            newest.number + 1,
            columns or newest.columns,
            tuple(sorted([*fragments, *numbered], key=lambda f: f.fragment_id)),
            at + len(numbered),
            newest.config if config is None else config,
            TransactionInfo(operation, read_version, dict(properties or {}), restored, rewritten),
            frozenset(touched),
            readable,
            newest.segments if segments is None else segments,
            indexed or newest.indexed,
        )
        self.versions[version.number] = version
        self.landed.append(version)
        if self.now_ms is not None:
            self.stored_ms[version.number] = self.now_ms()
        for tell in self.told:
            tell(version.number)
        return version.number

    def index(self, segments: tuple[frozenset[int], ...], column: str | None = None) -> int:
        """The next version, with these segments of the index."""
        newest = self.newest
        return self.add(newest.number, "CreateIndex", newest.fragments, segments=segments, indexed=column)

    def conflict(self, commit: TableCommit) -> str | None:
        """Why the commit cannot land on the newest version, or None."""
        if commit.read_version not in self.versions:
            return f"read version {commit.read_version} is gone"
        ours = {_Fragment.parse(text).fragment_id for text in commit.updated_fragments}
        ours.update(commit.removed_fragment_ids)
        ours.update(_Fragment.parse(text).fragment_id for text in commit.rewritten)
        if self.newest.indexed in commit.columns_written and self.versions[commit.read_version].indexed is None:
            return (
                f"the index is over column {self.newest.indexed}, which a commit read at {commit.read_version} writes"
            )
        for number in sorted(n for n in self.versions if n > commit.read_version):
            theirs = self.versions[number]
            operation = theirs.transaction.operation
            if commit.rewritten and operation == "CreateIndex":
                return f"version {number} ({operation}) conflicts with a rewrite read at {commit.read_version}"
            if operation in _REBASED_OVER or (operation in ("Append", "Project") and not commit.strict):
                continue
            if operation in _COMPARED and not commit.strict and not theirs.touched & ours:
                continue
            return f"version {number} ({operation}) conflicts with a commit read at {commit.read_version}"
        return None

    def land(self, commit: TableCommit) -> int:
        """Commit without looking for conflicts."""
        updated = {f.fragment_id: f for f in map(_Fragment.parse, commit.updated_fragments)}
        gone = {*commit.removed_fragment_ids, *(_Fragment.parse(text).fragment_id for text in commit.rewritten)}
        old = () if commit.strict else self.newest.fragments
        covered = self.newest.segments
        if self.newest.indexed in commit.columns_written:
            covered = tuple(segment - updated.keys() for segment in covered)
        kept = [updated.get(f.fragment_id, f) for f in old if f.fragment_id not in gone]
        new = [*map(_Fragment.parse, commit.new_fragments)]
        return self.add(
            self.newest.number,
            "Merge" if commit.strict else "Rewrite" if commit.rewritten else "Update",
            kept,
            new,
            {*updated, *gone},
            commit.properties,
            segments=covered,
            rewritten=_rewritten(map(_Fragment.parse, commit.rewritten), new),
        )

    def change(self, commit: ColumnsCommit) -> int | str:
        """Land a change of columns; the reason if it conflicts."""
        read = self.versions.get(commit.read_version)
        if read is None:
            return f"read version {commit.read_version} is gone"
        for number in sorted(n for n in self.versions if n > commit.read_version):
            operation = self.versions[number].transaction.operation
            if operation in _NO_PROJECT_OVER or (commit.fragments is not None and operation not in _REBASED_OVER):
                return f"version {number} ({operation}) conflicts with a change of columns"
        if commit.fragments is not None:
            known = {id_ for ids in read.columns.ids.values() for id_ in ids}
            low = {id_ for ids in commit.field_ids.values() for id_ in ids if id_ not in known and id_ < max(known)}
            if low:
                return f"ids up to {max(known)} are already used, so {sorted(low)} are not new"
        schema = commit.schema.with_metadata(None if commit.mark is None else {COLUMNS_MARK: commit.mark.encode()})
        columns = _Columns(schema, dict(commit.field_ids))
        newest = self.newest
        if commit.fragments is None:
            return self.add(newest.number, "Project", newest.fragments, properties=commit.properties, columns=columns)
        fragments = map(_Fragment.parse, commit.fragments)
        return self.add(newest.number, "Merge", fragments, properties=commit.properties, columns=columns)

    def hidden(self, fragment: _Fragment) -> frozenset[int]:
        """Physical rows that its deletion vector hides; raises ``VersionGone`` if that file is not there."""
        if fragment.vector is None:
            return frozenset()
        found = self.vectors.get((fragment.fragment_id, fragment.vector))
        if found is None:
            raise VersionGone(f"deletion file {fragment.vector} of fragment {fragment.fragment_id} is gone")
        return found

    def rows(self, fragment: _Fragment, columns: _Columns | None = None) -> pa.Table:
        """All physical rows, with the columns of a version, the newest by default; ``VersionGone`` if a data file is not
        there."""
        gone = [name for name in fragment.files if name not in self.files]
        if gone:
            raise VersionGone(f"data file {gone[0]} is gone")
        columns = columns or self.newest.columns
        found = []
        for tree in columns.trees():
            values = self._values(fragment, tree)
            found.append(pa.nulls(fragment.physical_rows, tree.type) if values is None else values)
        return pa.Table.from_arrays(found, schema=columns.schema)

    def _values(self, fragment: _Fragment, tree: Tree) -> pa.Array | None:
        """Values of a field, or None where no file of the fragment holds it, or a field within it."""
        plain = set(_plain(tree))
        file = next((name for name, own in reversed(fragment.held) if not plain.isdisjoint(own)), None)
        if file is None:
            return None
        stored, there = self._stored(file, tree.id)
        if not pa.types.is_struct(tree.type):
            return _within(stored, there, tree)
        members = [(self._values(fragment, member), member) for member in tree.within]
        arrays = [pa.nulls(len(stored), member.type) if array is None else array for array, member in members]
        return pa.StructArray.from_arrays(arrays, fields=list(tree.type), mask=stored.is_null())

    def _stored(self, file: str, id_: int) -> tuple[pa.Array, Tree]:
        """Values of a field in a file, and the field; those of a struct that is null are null."""

        def look(array: pa.Array, tree: Tree) -> tuple[pa.Array, Tree] | None:
            if tree.id == id_:
                return array, tree
            if not pa.types.is_struct(tree.type):
                return None
            found = (look(*member) for member in zip(array.flatten(), tree.within, strict=True))
            return next((one for one in found if one is not None), None)

        rows = self.files[file]
        columns = (look(_one_array(rows[tree.name]), tree) for tree in self.file_columns[file].trees())
        return next(one for one in columns if one is not None)

    def live(self, fragment: _Fragment, columns: _Columns | None = None) -> tuple[pa.Table, np.ndarray]:
        """Live rows of a fragment and their physical places."""
        rows = self.rows(fragment, columns)
        places = np.setdiff1d(np.arange(rows.num_rows), np.array(sorted(self.hidden(fragment)), np.int64))
        return rows.take(pa.array(places)), places

    def hide(self, fragment: _Fragment, rows: Iterable[int]) -> _Fragment | None:
        """The fragment with a new deletion vector; None if no row is left."""
        hidden = self.hidden(fragment) | set(rows)
        if len(hidden) == fragment.physical_rows:
            return None
        name = self.new_name()
        self.vectors[fragment.fragment_id, name] = hidden
        return replace(fragment, vector=name, deleted_rows=len(hidden))


@dataclass(slots=True)
class _Branched:
    """A branch; ``version``: of the table, that it began at."""

    version: int
    dataset: MemoryDataset
    notes: dict[str, str] = field(default_factory=dict)


class MemoryPinned:
    """One version."""

    def __init__(self, table: MemoryTable, version: _Version) -> None:
        self._table = table
        self._version = version

    @property
    def version(self) -> TableVersion:
        return TableVersion(self._version.number)

    @property
    def config(self) -> Mapping[str, str]:
        return self._version.config

    @property
    def schema(self) -> pa.Schema:
        return self._version.columns.schema

    @property
    def file_format(self) -> str:
        return "2.2"

    @property
    def field_ids(self) -> Mapping[str, tuple[int, ...]]:
        return self._version.columns.ids

    def fragments(self) -> Sequence[Fragment]:
        return [self.fragment(f.fragment_id) for f in self._version.fragments]

    def fragment_ids(self) -> np.ndarray:
        return np.array([f.fragment_id for f in self._version.fragments], np.int64)

    def fragment(self, fragment_id: int) -> Fragment:
        f = self._fragment(fragment_id)
        return Fragment(
            f.fragment_id,
            f.files,
            f.physical_rows,
            f.deleted_rows,
            _file_bytes(f.physical_rows) * len(f.files),
            tuple(own for _, own in f.held),
            f.vector,
        )

    def fragment_json(self, fragment_id: int) -> str:
        return self._fragment(fragment_id).json()

    def indexes(self) -> Sequence[TableIndex]:
        live = {f.fragment_id for f in self._version.fragments}
        named, column = self._version.segments, self._version.indexed
        if column is None:
            return []
        segments = tuple(ids & live for ids in named)
        # Which version a segment is of is not kept: none of them can be told to be older than another.
        return [TableIndex("index", segments, frozenset([column]), named=named, versions=(1,) * len(named))]

    @property
    def stable_row_ids(self) -> bool:
        return False

    def updated_rows(self) -> frozenset[tuple[int, int]]:
        return frozenset()

    def unrewritable_fragments(self) -> frozenset[int]:
        return frozenset()

    def scan(
        self,
        columns: Sequence[str],
        *,
        filter: str | None = None,
        fragment_ids: Sequence[int] | None = None,
        rows: range | AllBut | None = None,
        with_row_address: bool = False,
        batch_rows: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if filter is not None:
            raise NotImplementedError("the twin evaluates no filters")
        for fragment in self._version.fragments:
            if fragment_ids is not None and fragment.fragment_id not in fragment_ids:
                continue
            self._table.begin("scan")
            live, places = self._table.dataset.live(fragment, self._version.columns)
            if rows is not None:
                within = (
                    ~np.isin(_addresses(fragment.fragment_id, places), rows.addresses)
                    if isinstance(rows, AllBut)
                    else np.isin(places, np.arange(rows.start, rows.stop))
                )
                live, places = live.filter(pa.array(within)), places[within]
            live, addresses = live.select(list(columns)), _addresses(fragment.fragment_id, places)
            if with_row_address:
                live = live.append_column(pa.field(ROW_ADDRESS, pa.uint64()), pa.array(addresses))
            yield from live.to_batches(max_chunksize=batch_rows)

    def take(self, addresses: pa.Array, columns: Sequence[str]) -> pa.Table:
        self._table.begin("take")
        by_address: dict[int, tuple[int, int]] = {}
        tables: list[pa.Table] = []
        asked = {address >> 32 for address in addresses.to_pylist()}
        for fragment in self._version.fragments:
            if fragment.fragment_id not in asked:
                continue  # a file of it may be gone
            rows, places = self._table.dataset.live(fragment, self._version.columns)
            for row, address in enumerate(_addresses(fragment.fragment_id, places).tolist()):
                by_address[address] = (len(tables), row)
            tables.append(rows.select(list(columns)))
        starts = np.cumsum([0, *(t.num_rows for t in tables)])
        wanted = []
        for address in addresses.to_pylist():
            if address not in by_address:
                raise VersionGone(f"version {self.version}: a row address is no longer live", version=self.version)
            table, row = by_address[address]
            wanted.append(int(starts[table]) + row)
        schema = pa.schema([self.schema.field(name) for name in columns])
        return (pa.concat_tables(tables) if tables else schema.empty_table()).take(pa.array(wanted, pa.int64()))

    def all_rows(self, fragment_id: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self._table.begin("all rows")
        rows = self._table.dataset.rows(self._fragment(fragment_id), self._version.columns)
        yield from rows.select(list(columns)).to_batches()

    def hidden_rows(self, fragment_id: int) -> np.ndarray:
        self._table.begin("hidden rows")
        return np.array(sorted(self._table.dataset.hidden(self._fragment(fragment_id))), np.int64)

    def hide_rows(self, fragment_id: int, rows: RowNumbers) -> str | None:
        self._table.begin("hide rows")
        fragment = self._fragment(fragment_id)
        changed = self._table.dataset.hide(fragment, [int(row) for row in rows])
        self._table.end("hide rows")
        return None if changed is None else changed.json()

    def column_bytes(self, fragment_id: int, columns: Sequence[str]) -> Mapping[str, int] | None:
        self._table.begin("column bytes")
        size = _file_bytes(self._fragment(fragment_id).physical_rows) // len(self.schema)
        return dict.fromkeys(columns, size)

    def write_columns(self, fragment_id: int, rows: np.ndarray, values: pa.Table, fragment_json: str) -> str:
        self._table.begin("write columns")
        dataset, fragment = self._table.dataset, self._fragment(fragment_id)
        held = tuple(values.column_names)
        old = dataset.rows(fragment, self._version.columns).select(held)
        source = np.arange(old.num_rows)
        source[rows] = old.num_rows + np.arange(values.num_rows)
        new = pa.concat_tables([old, values.cast(old.schema)]).take(pa.array(source))
        written = dataset.write_columns(_Fragment.parse(fragment_json), new, self.field_ids)
        self._table.end("write columns")
        return written.json()

    def write_widened(self, fragment_id: int, schema: pa.Schema, field_ids: Mapping[str, Sequence[int]]) -> str:
        self._table.begin("write wider columns")
        dataset, fragment = self._table.dataset, self._fragment(fragment_id)
        rows = dataset.rows(fragment, self._version.columns).select(schema.names).cast(schema)
        written = dataset.write_columns(fragment, rows, field_ids)
        self._table.end("write wider columns")
        return written.json()

    def _fragment(self, fragment_id: int) -> _Fragment:
        return next(f for f in self._version.fragments if f.fragment_id == fragment_id)


class MemoryTable:
    """One client of a data set; several may share it, each with faults of its own."""

    def __init__(self, dataset: MemoryDataset, faults: Faults | None = None, switch: Switch = no_switch) -> None:
        self.dataset = dataset
        self._faults = faults or Faultless()
        self._switch = switch

    # -- Table ---------------------------------------------------------------------------------------------------

    def newest(self) -> MemoryPinned:
        self.begin("newest")
        return MemoryPinned(self, self.dataset.newest)

    def at(self, version: int) -> MemoryPinned:
        self.begin("at")
        found = self.dataset.versions.get(version)
        if found is None:
            raise VersionGone(f"version {version} is gone: a clean-up removed it", version=version)
        return MemoryPinned(self, found)

    def opened(self, version: int) -> MemoryPinned:
        return self.at(version)

    def versions(self) -> Sequence[TableVersion]:
        self.begin("versions")
        return [TableVersion(version) for version in sorted(self.dataset.versions)]

    def commit_time(self, version: int) -> int:
        return self.dataset.committed_ms(self.at(version).version)

    def transaction(self, version: int) -> TransactionResult:
        self.begin("transaction")
        found = self.dataset.versions.get(version)
        if found is None:
            return TransactionGone()
        return found.transaction if found.readable else TransactionUnreadable()

    def write_rows(self, rows: pa.Table, field_ids: Mapping[str, Sequence[int]] | None = None) -> tuple[str, ...]:
        self.begin("write rows")
        written = self.dataset.write(rows, field_ids).json()
        self.end("write rows")
        return (written,)

    def stored_versions(self) -> Mapping[TableVersion, int]:
        """None where the data set has no clock."""
        if self.dataset.now_ms is None:
            return {}
        self.begin("stored versions")
        stored = self.dataset.stored_ms
        return {TableVersion(number): stored[number] for number in self.dataset.versions if number in stored}

    def remove_versions(self, versions: Sequence[TableVersion]) -> None:
        self.begin("remove versions")
        gone = set(versions) - self.dataset.held() - {self.dataset.newest.number}
        self._remove({int(number) for number in gone if number in self.dataset.versions})
        self._remove_unnamed()
        self.end("remove versions")

    def branches(self, beginning: str = "") -> Sequence[Branch]:
        self.begin("branches")
        found = sorted(it for it in self.dataset.branches.items() if it[0].startswith(beginning))
        return [Branch(name, TableVersion(branch.version), dict(branch.notes)) for name, branch in found]

    def find_branch(self, name: str) -> Branch | None:
        return next((branch for branch in self.branches() if branch.name == name), None)

    def names_fault(self) -> ObjectCorrupt | None:
        return self.dataset.names_fault

    def branch(self, name: str) -> MemoryTable:
        return _BranchTable(self.dataset, name, self._faults, self._switch)

    def create_branch(self, name: str, version: TableVersion) -> bool:
        self.begin("create branch")
        if name in self.dataset.branches:
            return False
        if version not in self.dataset.versions:
            raise VersionGone(f"version {version} is gone: a clean-up removed it", version=version)
        self.dataset.branches[name] = _Branched(int(version), self.dataset.branched(name, int(version)))
        self.end("create branch")
        return True

    def note_branch(self, name: str, notes: Mapping[str, str]) -> None:
        self.begin("note branch")
        found = self.dataset.branches.get(name)
        if found is None:
            raise VersionGone(f"branch {name} is gone")
        found.notes = dict(notes)
        self.end("note branch")

    def drop_branch(self, name: str) -> bool:
        self.begin("drop branch")
        gone = self.dataset.branches.pop(name, None)
        if gone is not None:
            for file in _files(gone.dataset.named()) - _files(self.dataset.named()):
                self.dataset.files.pop(file, None)
        self.end("drop branch")
        return gone is not None

    def files_missing(self, files: Sequence[str]) -> Sequence[str]:
        self.begin("files missing")
        return [name for name in files if name not in self.dataset.files]

    def read_unadopted(
        self, fragments: Sequence[str], columns: Sequence[str], rows: range | None = None
    ) -> Iterator[pa.RecordBatch]:
        for fragment, own in rows_of_fragments(fragments, rows):
            self.begin("read unadopted")
            (name,) = fragment_files(fragment)
            found = self.dataset.files.get(name)
            if found is None:
                raise ObjectMissing(f"data file {name} of an unmerged flush is missing", file=name)
            part = found if own is None else found.slice(own.start, len(own))
            yield from part.select(list(columns)).to_batches()

    def file_bytes(self, files: Sequence[str]) -> Sequence[int]:
        self.begin("file bytes")
        for name in files:
            if name not in self.dataset.files:
                raise VersionGone(f"data file {name} is gone", file=name)
        return [_file_bytes(self.dataset.files[name].num_rows) for name in files]

    def rewrite(self, version: int, fragment_ids: Sequence[int], bounds: RewriteBounds) -> tuple[str, ...]:
        self.begin("rewrite")
        found = self.dataset.versions.get(version)
        if found is None:
            raise VersionGone(f"version {version} is gone: a clean-up removed it", version=version)
        rows = pa.concat_tables(
            [self.dataset.live(f, found.columns)[0] for f in found.fragments if f.fragment_id in fragment_ids]
        )
        starts = range(0, rows.num_rows, bounds.file_rows)
        ids = found.columns.ids
        written = tuple(self.dataset.write(rows.slice(start, bounds.file_rows), ids).json() for start in starts)
        self.end("rewrite")
        return written

    def extend_index(self, name: str, merged_segments: int) -> CommitOutcome:
        self.begin("extend index")
        newest = self.dataset.newest
        (index,) = (i for i in MemoryPinned(self, newest).indexes() if i.name == name)
        uncovered = {f.fragment_id for f in newest.fragments} - index.covered
        kept = len(newest.segments) - merged_segments
        segment = frozenset(uncovered).union(*newest.segments[kept:])
        self.end("extend index")
        since = range(newest.number + 1, self.dataset.newest.number + 1)
        if any(
            self.dataset.versions[n].transaction.operation == "Rewrite" for n in since if n in self.dataset.versions
        ):
            return Conflicted("a rewrite came in between")
        if not uncovered and merged_segments < 2:
            return Committed(TableVersion(newest.number))
        return Committed(TableVersion(self.dataset.index((*newest.segments[:kept], segment))))

    def rebuild_index(self, name: str) -> CommitOutcome:
        self.begin("rebuild index")
        return Committed(self.create_index(self.dataset.newest.indexed))

    def commit(self, commit: TableCommit) -> CommitOutcome:
        self._switch("table.commit")
        self._land()
        fault = self._faults.commit()
        if fault is CommitFault.NEVER_ARRIVED:
            return CommitLost("the request was lost")
        reason = self.dataset.conflict(commit)
        if reason is not None:
            outcome: CommitOutcome = Conflicted(reason)
        elif fault is CommitFault.LANDS_LATER:
            self.dataset.under_way.append((self.dataset.newest.number + 1, commit))
            return CommitLost("timed out")
        else:
            number = self.dataset.land(commit)
            outcome = Committed(TableVersion(number), MemoryPinned(self, self.dataset.versions[number]))
        self._switch("table.commit done")
        return CommitLost("the reply was lost") if fault is CommitFault.REPLY_LOST else outcome

    def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
        self._switch("table.change columns")
        self._land()
        fault = self._faults.commit()
        if fault is CommitFault.NEVER_ARRIVED or fault is CommitFault.LANDS_LATER:
            return CommitLost("the request was lost")
        landed = self.dataset.change(commit)
        self._switch("table.change columns done")
        if fault is CommitFault.REPLY_LOST:
            return CommitLost("the reply was lost")
        if isinstance(landed, str):
            return Conflicted(landed)
        return Committed(TableVersion(landed), MemoryPinned(self, self.dataset.versions[landed]))

    # -- for the pinned versions ---------------------------------------------------------------------------------

    def begin(self, act: str) -> None:
        """A switch, and perhaps a fault."""
        self._switch(f"table.{act}")
        self._land()
        if self._faults.unavailable(act, "table"):
            raise StoreUnavailable(f"{act}: 503")

    def end(self, act: str) -> None:
        self._switch(f"table.{act} done")

    def _land(self) -> None:
        while self.dataset.under_way and self._faults.lands():
            number, commit = self.dataset.under_way.pop(0)
            if number == self.dataset.newest.number + 1:
                self.dataset.land(commit)

    # -- what users do -------------------------------------------------------------------------------------------

    def append(self, rows: pa.Table) -> TableVersion:
        newest = self.dataset.newest
        return TableVersion(self.dataset.add(newest.number, "Append", newest.fragments, [self.dataset.write(rows)]))

    def delete_where(self, column: str, values: Sequence[object]) -> TableVersion:
        """Delete the rows whose ``column`` is one of ``values``."""
        newest = self.dataset.newest
        kept, touched = [], set()
        for fragment in newest.fragments:
            rows, places = self.dataset.live(fragment)
            found = [int(p) for p, v in zip(places, rows[column].to_pylist(), strict=True) if v in values]
            changed = self.dataset.hide(fragment, found) if found else fragment
            if changed is not fragment:
                touched.add(fragment.fragment_id)
            if changed is not None:
                kept.append(changed)
        return TableVersion(self.dataset.add(newest.number, "Delete", kept, touched=touched))

    def compact(self, fragment_ids: Sequence[int] | None = None) -> TableVersion:
        """Rewrite fragments (default: all) as one.  Takes two versions: one reserves the new fragment's id."""
        newest = self.dataset.newest
        old = [f for f in newest.fragments if fragment_ids is None or f.fragment_id in fragment_ids]
        if not old:
            return TableVersion(newest.number)
        rows = pa.concat_tables([self.dataset.live(f)[0] for f in old])
        self.dataset.add(newest.number, _RESERVE, newest.fragments)
        touched = {f.fragment_id for f in old}
        kept = [f for f in newest.fragments if f.fragment_id not in touched]
        new = [self.dataset.write(rows)]
        return TableVersion(
            self.dataset.add(
                newest.number,
                "Rewrite",
                kept,
                new,
                touched,
                readable=not self.dataset.indexed,
                rewritten=_rewritten(old, new),
            )
        )

    def add_column(self, name: str, type_: str) -> TableVersion:
        """Add a column of nulls, with the id that Lance gives it: one above all of the schema and the data files."""
        newest = self.dataset.newest
        ids = [i for own in newest.columns.ids.values() for i in own]
        ids += [i for f in newest.fragments for _, own in f.held for i in own]
        numbers = itertools.count(max(ids) + 1)
        field = pa.field(name, parse_type(type_))
        own = tuple(itertools.islice(numbers, _field_count(field.type)))
        columns = _Columns(newest.columns.schema.append(field), {**newest.columns.ids, name: own})
        return TableVersion(self.dataset.add(newest.number, "Merge", newest.fragments, columns=columns))

    def rename_column(self, path: str, name: str) -> TableVersion:
        """Rename a column, or a member of a struct: ``s.a``."""
        return self._project(path, lambda tree: [replace(tree, name=name)])

    def drop_column(self, path: str) -> TableVersion:
        """Drop a column, or a member of a struct: ``s.a``."""
        return self._project(path, lambda tree: [])

    def _project(self, path: str, make: Callable[[Tree], Sequence[Tree]]) -> TableVersion:
        newest = self.dataset.newest
        columns = newest.columns.with_trees(_replaced(newest.columns.trees(), path.split("."), make))
        return TableVersion(self.dataset.add(newest.number, "Project", newest.fragments, columns=columns))

    def create_index(self, column: str | None = None) -> TableVersion:
        self.dataset.indexed = True
        covered = frozenset(f.fragment_id for f in self.dataset.newest.fragments)
        return TableVersion(self.dataset.index((covered,), column or self.dataset.schema.names[0]))

    def update_config(self, entries: Mapping[str, str]) -> TableVersion:
        newest = self.dataset.newest
        return TableVersion(
            self.dataset.add(newest.number, "UpdateConfig", newest.fragments, config={**newest.config, **entries})
        )

    def restore(self, version: int) -> TableVersion:
        newest, old = self.dataset.newest, self.dataset.versions[version]
        touched = {f.fragment_id for f in newest.fragments}
        return TableVersion(
            self.dataset.add(
                newest.number,
                "Restore",
                old.fragments,
                touched=touched,
                config=old.config,
                restored=version,
                columns=old.columns,
            )
        )

    def overwrite(self, rows: pa.Table) -> TableVersion:
        newest = self.dataset.newest
        touched = {f.fragment_id for f in newest.fragments}
        return TableVersion(
            self.dataset.add(newest.number, "Overwrite", (), [self.dataset.write(rows)], touched=touched)
        )

    def tag(self, version: int) -> None:
        """A tagged version survives clean-ups."""
        self.dataset.tags.add(version)

    def cleanup(self, keep: int = 1, *, delete_unverified: bool = False) -> None:
        """Remove all but the newest ``keep`` versions and what only they refer to.

        With ``delete_unverified`` also data files to which no version ever referred.
        """
        dataset = self.dataset
        kept = {*sorted(dataset.versions)[-keep:], *(dataset.held() & dataset.versions.keys())}
        self._remove(dataset.versions.keys() - kept, delete_unverified=delete_unverified)

    def _remove_unnamed(self) -> None:
        """Data files that no version names go a week after they were written."""
        dataset = self.dataset
        if dataset.now_ms is None:
            return
        for name in dataset.files.keys() - _files(dataset.named()):
            if dataset.now_ms() - dataset.written_ms.get(name, dataset.now_ms()) > _UNNAMED_MS:
                dataset.files.pop(name)

    def _remove(self, numbers: Collection[int], *, delete_unverified: bool = False) -> None:
        dataset = self.dataset
        gone = [dataset.versions.pop(number) for number in sorted(numbers)]
        before = [f for version in gone for f in version.fragments]
        left = dataset.named()
        files = set(dataset.files) if delete_unverified else _files(before)
        for name in files - _files(left):
            dataset.files.pop(name, None)
        vectors = set(dataset.vectors) if delete_unverified else _vectors(before)
        for key in vectors - _vectors(left):
            dataset.vectors.pop(key, None)


class _BranchTable(MemoryTable):
    """A branch of a data set, looked up at each call: it may have been dropped."""

    def __init__(self, parent: MemoryDataset, name: str, faults: Faults, switch: Switch) -> None:
        found = parent.branches.get(name)
        super().__init__(parent if found is None else found.dataset, faults, switch)
        self._parent, self._name = parent, name

    def begin(self, act: str) -> None:
        super().begin(act)
        found = self._parent.branches.get(self._name)
        if found is None or found.dataset is not self.dataset:
            raise (TableMissing if act == "newest" else VersionGone)(f"branch {self._name} is gone")

    def commit(self, commit: TableCommit) -> CommitOutcome:
        self.begin("commit")
        return super().commit(commit)


def _rewritten(old: Iterable[_Fragment], new: Sequence[_Fragment]) -> tuple[RewrittenFragments, ...]:
    ids = tuple(f.fragment_id for f in old)
    return (RewrittenFragments(ids, tuple(f.file for f in new)),) if ids else ()


def _file_bytes(rows: int) -> int:
    return 100 + 10 * rows


def _field_count(type_: pa.DataType) -> int:
    """Fields of a column of this type as Lance counts them: fixed-size lists have no field for their items."""
    if pa.types.is_fixed_size_list(type_):
        return 1
    return 1 + sum(_field_count(type_.field(i).type) for i in range(type_.num_fields))


def _plain(tree: Tree) -> list[int]:
    return [inner.id for inner in tree.all() if not inner.within]


def _replaced(trees: Iterable[Tree], path: Sequence[str], make: Callable[[Tree], Sequence[Tree]]) -> list[Tree]:
    """The fields with others, or none, at a path through structs."""
    found: list[Tree] = []
    for tree in trees:
        if tree.name != path[0]:
            found.append(tree)
        elif len(path) == 1:
            found += make(tree)
        else:
            within = tuple(_replaced(tree.within, path[1:], make))
            found.append(replace(tree, type=pa.struct([(t.name, t.type) for t in within]), within=within))
    return found


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _within(array: pa.Array, old: Tree, new: Tree) -> pa.Array:
    """The values of one field with other names and members within, nulls in those that it lacks."""
    if not new.within:
        if old.type != new.type:
            raise ValueError(f"a file has field {old.id} as {old.type}, the version has it as {new.type}")
        return array
    members = {tree.id: (place, tree) for place, tree in enumerate(old.within)}
    if pa.types.is_struct(new.type):
        flat = array.flatten()
        arrays = [
            _within(flat[members[tree.id][0]], members[tree.id][1], tree)
            if tree.id in members
            else pa.nulls(len(array), tree.type)
            for tree in new.within
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(new.type), mask=array.is_null())
    lists = [None if values is None else list(values) for values in array.to_pylist()]
    items = _within(array.flatten(), old.within[0], new.within[0])
    ends = np.cumsum([0, *(len(values or []) for values in lists)])
    mask = pa.array([values is None for values in lists], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=new.type, mask=mask)


def _files(fragments: Iterable[_Fragment]) -> set[str]:
    return {name for f in fragments for name in f.files}


def _vectors(fragments: Iterable[_Fragment]) -> set[tuple[int, str]]:
    return {(f.fragment_id, f.vector) for f in fragments if f.vector is not None}


def _addresses(fragment_id: int, places: np.ndarray) -> np.ndarray:
    return (np.uint64(fragment_id) << np.uint64(32)) | places.astype(np.uint64)
