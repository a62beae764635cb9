"""The Lance table as the protocols need it: pinned versions, and commits with three outcomes.

Guarantees that an implementation gives
 1. A ``PinnedTable`` never changes; it raises ``VersionGone`` once a clean-up removed its version.
 2. ``commit`` lands whole or not at all.  ``Committed``: it landed as this version.  ``Conflicted``: it did not and
    never will; plan again.  ``CommitLost``: no verdict, it may have landed; look for its uuid in the versions above.
    Where the version read is gone, it does not land, and the answer is one of these two.
 3. Commits by ``Merge`` (``strict``) conflict with every merge from the same version.  Commits by ``Update`` conflict
    with commits that touch a common fragment, and are rebased over appends and index builds.  Commits by ``Rewrite``
    (``rewritten``) do the same, but conflict with an index build in between too.
 4. Whatever a commit does to fragments, queries by an index find the same rows.  An index knows which fragments it
    covers, and rows of other fragments are scanned.  ``extend_index`` covers them again.
 5. A commit with ``columns_written`` conflicts if an index of such a column has come since its read version, in every
    version that had landed when ``commit`` was called.  Another index may land while Lance commits, or may be built
    from an earlier version and land later.  Such an index does not cover the fragments, as in 4.  But one of its
    segments holds their old values, which an extension would bring back.  Code that extends indexes must look for that
    first (``fields_apart``).
 6. Commits by ``Project`` (``change_columns``) are rebased over appends, updates, deletes, rewrites and index builds, and
    these over them: values belong to fields by their ids.  They conflict with each other and with ``Merge``.
 7. A change of columns with ``fragments`` is a ``Merge``: it conflicts with every commit since its read version that
    brought or changed rows or columns, and every such commit from before it conflicts with it, but an append.

Fragments travel as JSON text (Lance's ``FragmentMetadata``), so that values pickle and can be stored.  A *row address*
is ``fragment id << 32 | physical row`` (uint64).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import ObjectCorrupt, ObjectMissing, VersionGone
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion

RowNumbers: TypeAlias = "Sequence[int] | npt.NDArray[np.int64]"
"""Physical rows of one fragment."""
ROW_ADDRESS = "_rowaddr"
FIELD_NOT_USED = -2
"""Field id in a fragment's JSON for a column of a file that the fragment does not use."""


@dataclass(frozen=True, slots=True)
class AllBut:
    """All rows except those at these row addresses, which must ascend."""

    addresses: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Fragment:
    """One fragment of a pinned version."""

    fragment_id: int
    files: tuple[str, ...]
    """Names of its data files in the table's data folder."""
    physical_rows: int
    deleted_rows: int
    nbytes: int
    """Bytes of its data files, as far as recorded."""
    file_fields: tuple[tuple[int, ...], ...] = ()
    """Ids of the fields that each data file holds, file by file; empty if each file holds all fields."""
    deletion_file: str | None = None
    """Name of the file that says which rows are deleted; no other deletion file of this fragment has it."""

    @property
    def live_rows(self) -> int:
        return self.physical_rows - self.deleted_rows


def key_file(fragment: Fragment, field_ids: Sequence[int]) -> str | None:
    """Return the one data file of a fragment that holds all these fields; None if no single file does."""
    if not fragment.file_fields:
        return fragment.files[0] if len(fragment.files) == 1 else None
    wanted = set(field_ids)
    for name, fields in zip(fragment.files, fragment.file_fields, strict=True):
        if wanted.issubset(fields):
            return name
    return None


def fields_apart(fragment: Fragment, field_ids: Iterable[int]) -> bool:
    """Return whether one of these fields may have been written in place.

    The fragment's first file has all fields that came with its rows.  A field that was written in place lies in another
    file.  A column that was added later does so too, and no file tells the two apart."""
    later = {i for fields in fragment.file_fields[1:] for i in fields}
    return not later.isdisjoint(field_ids) or (not all(fragment.file_fields) and bool(fragment.file_fields))


def fragment_files(fragment_json: str) -> tuple[str, ...]:
    """Return the names of the data files of a fragment."""
    return tuple(file["path"] for file in json.loads(fragment_json)["files"])


def files_of(fragments: Iterable[str]) -> frozenset[str]:
    """Return the names of the data files of all these fragments."""
    return frozenset(name for fragment in fragments for name in fragment_files(fragment))


def rows_by_fragment(addresses: Iterable[int]) -> dict[int, list[int]]:
    """Return the physical rows that row addresses name, by fragment id, in the order of the addresses."""
    found: dict[int, list[int]] = {}
    for address in addresses:
        found.setdefault(int(address) >> 32, []).append(int(address) & 0xFFFFFFFF)
    return found


def fragment_rows(fragment_json: str) -> int:
    """Return the number of physical rows of a fragment."""
    return int(json.loads(fragment_json)["physical_rows"])


def rows_of_fragments(fragments: Iterable[str], rows: range | None) -> Iterator[tuple[str, range | None]]:
    """Yield each of these fragments that has some of ``rows``, which count over all fragments in order, and its rows.

    None stands for all rows."""
    begin = 0
    for fragment in fragments:
        end = begin + fragment_rows(fragment)
        if rows is None or (rows.start <= begin and end <= rows.stop and begin < end):
            yield fragment, None
        elif max(begin, rows.start) < min(end, rows.stop):
            yield fragment, range(max(begin, rows.start) - begin, min(end, rows.stop) - begin)
        begin = end


def fragment_live_rows(fragment_json: str) -> int:
    """Return the number of rows of a fragment that its deletion vector does not hide."""
    deletion = hidden_by(fragment_json)
    return fragment_rows(fragment_json) - (int(deletion["num_deleted_rows"]) if deletion else 0)


def hidden_by(fragment_json: str) -> Mapping[str, Any] | None:
    """Return the deletion file of a fragment, as Lance describes it; None if no row is hidden."""
    found: Mapping[str, Any] | None = json.loads(fragment_json).get("deletion_file")
    return found


def fragment_objects(fragment_json: str) -> dict[str, int]:
    """Return the keys of a fragment's objects in the table's own folder, with their sizes in bytes; 0 if a size is not
    recorded."""
    content = json.loads(fragment_json)
    files = [file for file in content["files"] if file.get("base_id") is None]
    found = {f"{paths.DATA}{file['path']}": file.get("file_size_bytes") or 0 for file in files}
    deletion = hidden_by(fragment_json)
    if deletion and deletion.get("base_id") is None:
        ending = "arrow" if deletion["file_type"] == "array" else "bin"
        found[f"{paths.DELETIONS}{content['id']}-{deletion['read_version']}-{deletion['id']}.{ending}"] = 0
    return found


def fragment_bytes(fragment_json: str) -> int:
    """Return the bytes of the data files of a fragment, as far as recorded."""
    return sum(file.get("file_size_bytes") or 0 for file in json.loads(fragment_json)["files"])


def without_fields(fragment_json: str, gone: Collection[int]) -> str:
    """Return a fragment whose files no longer say that they have these fields.

    The values stay in the files.  If another program adds a column, which may get such an id, they are not its values."""
    found = json.loads(fragment_json)
    return json.dumps({**found, "files": files_without_fields(found["files"], gone)})


def files_without_fields(files: Iterable[Mapping[str, Any]], gone: Collection[int]) -> list[dict[str, Any]]:
    """Return the files without these fields.  A file that has no other field is left out, as Lance does it."""
    left = [{**file, "fields": [FIELD_NOT_USED if i in gone else i for i in file["fields"]]} for file in files]
    return [file for file in left if any(i != FIELD_NOT_USED for i in file["fields"])]


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One commit: the new and changed fragments and the properties that go with them."""

    read_version: TableVersion
    new_fragments: tuple[str, ...]
    updated_fragments: tuple[str, ...]
    removed_fragment_ids: tuple[int, ...]
    properties: Mapping[str, str]
    strict: bool
    """Commit as ``Merge`` with the full fragment list: used while the table has no fragment, and so no sentinel."""
    rewritten: tuple[str, ...] = ()
    """Fragments to commit as ``Rewrite``, by ascending id: ``new_fragments`` hold their live rows in this order, and
    nothing else changes."""
    columns_written: tuple[str, ...] = ()
    """Columns that ``write_columns`` wrote in ``updated_fragments``: indexes of them no longer cover these fragments."""


@dataclass(frozen=True, slots=True)
class ColumnsCommit:
    """A commit that changes the table's columns.

    Columns and members of structs are added, with nulls in all rows, renamed, dropped and put into another order.  Types
    of fields that stay do not change.  A column gets another type by another id, and by files of its values
    (``PinnedTable.write_widened``), which ``fragments`` name."""

    read_version: TableVersion
    schema: pa.Schema
    """All columns of the new version, in its order; those added are nullable."""
    field_ids: Mapping[str, tuple[int, ...]]
    """Per column its id and, depth first, those of its nested fields.  A field that stays keeps its id."""
    properties: Mapping[str, str]
    mark: str | None = None
    """The mark, which the new version and all after it show (``columns_mark``); None: they show none."""
    fragments: tuple[str, ...] | None = None
    """All fragments of the new version.  None: those of the version read, and of what landed since."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit landed, as this version.  ``pinned`` is the opened version, if it is at hand."""

    version: TableVersion
    pinned: PinnedTable | None = field(default=None, compare=False)
    far_rows: tuple[int, ...] = field(default=(), compare=False)
    """Addresses of rows that the index cannot take, so that it was built without them."""


@dataclass(frozen=True, slots=True)
class Conflicted:
    """The commit did not land and never will; plan again."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommitLost:
    """The outcome is unknown: the commit may have landed."""

    cause: str
    far_rows: tuple[int, ...] = ()
    """Addresses of rows that the index cannot take, after an extension.  ``rebuild_index`` goes on without them."""


CommitOutcome = Committed | Conflicted | CommitLost


@dataclass(frozen=True, slots=True)
class RewriteBounds:
    """Bounds of rewriting fragments, and the form of the new ones."""

    batch_bytes: int
    """Approximate bytes of the rows in one batch."""
    buffer_bytes: int
    """Most bytes that are read ahead of the writer."""
    file_rows: int
    file_bytes: int
    """Approximate bytes at which a new data file begins; the field above is the limit in rows."""
    copy: bool
    """Copy pages unchanged if no row is deleted and the files allow it; otherwise rows are decoded and encoded."""


@dataclass(frozen=True, slots=True)
class TableIndex:
    """A secondary index.  A query asks all its segments, and scans fragments that none of them covers."""

    name: str
    segments: tuple[frozenset[int], ...]
    """Live fragments that each segment covers, oldest segment first."""
    columns: frozenset[str] = frozenset()
    """Top-level columns that the index covers, whole or in part."""
    row_bytes: float = 0.0
    """Stored bytes of a row in the index; 0 if Lance does not say."""
    kind: str = ""
    """Lance's name of the index type, e.g. ``BTree``, ``Inverted``, ``IVF_PQ``."""
    named: tuple[frozenset[int], ...] = ()
    """Fragments that each segment names, also those that are gone."""
    versions: tuple[int, ...] = ()
    """Per index segment: table version of its oldest entries; for a merged segment, the oldest of its parts."""
    extends_alone: bool = True
    """Whether Lance can make a segment of uncovered rows only.  Otherwise an extension takes in at least one segment."""

    @property
    def covered(self) -> frozenset[int]:
        """Live fragments that one of the segments covers."""
        return frozenset[int]().union(*self.segments)


@dataclass(frozen=True, slots=True)
class RewrittenFragments:
    """New fragments of a ``Rewrite``.  They hold the live rows of the old ones, in their order."""

    old_ids: tuple[int, ...]
    """Ids of the old fragments, in the order of their rows."""
    new_files: tuple[str, ...]
    """One data file of each new fragment, in the order of their rows.  Transactions do not know ids that a commit gave."""


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """Transaction that made a version.  ``operation`` is Lance's name of its kind, e.g. ``Update``, ``Append``,
    ``Restore``."""

    operation: str
    read_version: int
    """Version that the transaction read.  For a rebased commit it is the version right below, not the one it was
    computed from."""
    properties: Mapping[str, str] = field(default_factory=dict)
    restored: int | None = None
    """Version whose content a ``Restore`` brought back."""
    rewritten: tuple[RewrittenFragments, ...] = ()
    """Fragments that a ``Rewrite`` replaced."""


@dataclass(frozen=True, slots=True)
class TransactionUnreadable:
    """The version exists, but Lance's Python binding cannot convert its transaction (a compaction that rewrote an
    index)."""


@dataclass(frozen=True, slots=True)
class TransactionGone:
    """The version was removed by a clean-up."""


TransactionResult = TransactionInfo | TransactionUnreadable | TransactionGone


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch: a separate table, whose first version is one of the table's."""

    name: str
    version: TableVersion
    """Version of the table at which the branch began."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Metadata of the branch, as ``note_branch`` wrote it."""


COLUMNS_MARK = b"lancewal.columns"
"""Key in the metadata of the table's schema.  Lance keeps it through commits of all kinds but restore and overwrite."""


class PinnedTable(Protocol):
    """One version of the table."""

    @property
    def version(self) -> TableVersion: ...

    @property
    def config(self) -> Mapping[str, str]: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def file_format(self) -> str:
        """The version of Lance's file format, such as 2.2."""

    @property
    def field_ids(self) -> Mapping[str, tuple[int, ...]]:
        """Lance's ids of each column's field and, depth first, of its nested fields."""

    def fragments(self) -> Sequence[Fragment]:
        """Live fragments by ascending id."""

    def fragment_ids(self) -> npt.NDArray[np.int64]:
        """Return the ids of the live fragments, ascending; for many fragments this is faster than ``fragments``."""

    def fragment(self, fragment_id: int) -> Fragment:
        """Return a live fragment."""

    def fragment_json(self, fragment_id: int) -> str:
        """Return a live fragment unchanged, to be listed in a commit."""

    def indexes(self) -> Sequence[TableIndex]:
        """Secondary indexes that users have made."""

    @property
    def stable_row_ids(self) -> bool:
        """Whether rows keep their ids when fragments are rewritten."""

    def updated_rows(self) -> frozenset[tuple[int, int]]:
        """Return pairs of versions, for rows that were updated and kept their row id.

        The first version of a pair made such a row, the second updated it last.  Empty for tables without stable row
        ids.  There an updated row is another row, or lies where ``fields_apart`` finds it.
        """

    def unrewritable_fragments(self) -> frozenset[int]:
        """Return the live fragments that must not be rewritten: queries by an index would be wrong afterwards."""

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
        """Yield live rows.  With ``with_row_address`` the last column is ``_rowaddr`` (uint64).

        A range of ``rows`` limits the scan to these physical rows of the one fragment in ``fragment_ids``.  A table
        with stable row ids must not be scanned with a range.
        """

    def take(self, addresses: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Return rows by address, in the order given."""

    def all_rows(self, fragment_id: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all physical rows of a fragment in their order, deleted ones too."""

    def hidden_rows(self, fragment_id: int) -> npt.NDArray[np.int64]:
        """Return the physical rows that the fragment's deletion vector hides, in any order."""

    def hide_rows(self, fragment_id: int, rows: RowNumbers) -> str | None:
        """Write a deletion vector that adds these physical rows; return the fragment's new JSON, None if no row is
        left."""

    def column_bytes(self, fragment_id: int, columns: Sequence[str]) -> Mapping[str, int] | None:
        """Return the bytes of each of these columns in a fragment's files; None if ``write_columns`` must not be used
        on the fragment."""

    def write_columns(self, fragment_id: int, rows: npt.NDArray[np.int64], values: pa.Table, fragment_json: str) -> str:
        """Rewrite columns of a fragment, as one more data file: these live physical rows with these values, all others
        unchanged.

        ``fragment_json`` is the fragment unchanged, or as ``hide_rows`` gave it; the result has its deletion vector.
        Raises ``VersionGone`` if a clean-up was faster, ``RewriteFailed`` if the columns could not be rewritten.
        """

    def write_widened(self, fragment_id: int, schema: pa.Schema, field_ids: Mapping[str, Sequence[int]]) -> str:
        """Write columns of a fragment again, with the wider types in ``schema`` and these ids, as one more data file:
        all physical rows.  Return the fragment's JSON with that file.

        Raises ``VersionGone`` if a clean-up was faster, ``RewriteFailed`` if the columns could not be rewritten.
        """


def columns_mark(pinned: PinnedTable) -> str | None:
    """Return the mark of the version's columns, in the form of ``columns.Mark``; None if it has none."""
    metadata: dict[bytes, bytes] = pinned.schema.metadata or {}
    mark = metadata.get(COLUMNS_MARK)
    return None if mark is None else mark.decode(errors="replace")


class StoredTable(Protocol):
    """The table: its newest version, and past ones.  Raises ``StoreUnavailable`` if the store does not answer."""

    def newest(self) -> PinnedTable: ...

    def at(self, version: int) -> PinnedTable:
        """Open a version.  Raise ``VersionGone`` if it was cleaned up."""

    def opened(self, version: int) -> PinnedTable:
        """Open as ``at`` does, but without a request if the version is open here.  If the version is gone, only a later
        read of missing files shows that."""

    def versions(self) -> Sequence[TableVersion]:
        """Return all versions that exist, tagged ones too, in any order."""

    def commit_time(self, version: int) -> int:
        """Return when the version was committed: milliseconds since 1970, by the clock of the process that committed
        it.

        This reads the version's manifest.  Raises ``VersionGone`` if there is none.
        """

    def stored_versions(self) -> Mapping[TableVersion, int]:
        """Return ``versions`` by one listing, each with the time since which it exists, by the store's clock (Unix
        ms)."""

    def remove_versions(self, versions: Sequence[TableVersion]) -> None:
        """Remove versions and the files that only they need, but never the newest, nor one that a tag or a branch
        needs.

        Files that no version has named stay for days, since a commit may be about to name them."""

    def branches(self, beginning: str = "") -> Sequence[Branch]:
        """Return all branches that can be read, by name.  Without branches this costs one listing.

        ``beginning``: only those whose names begin with it, at the cost of one listing and of a request for each."""

    def find_branch(self, name: str) -> Branch | None:
        """Return the branch of this name; None if there is none, or it cannot be read.  This costs one request."""

    def names_fault(self) -> ObjectCorrupt | None:
        """Return why the names of branches and tags cannot all be read; None if they can.

        While they cannot, nobody knows which versions they need."""

    def branch(self, name: str) -> StoredTable:
        """Return a branch as a table.  Its versions go on from the version at which it began.

        If the branch does not exist, ``newest`` raises ``TableMissing``, and ``at`` raises ``VersionGone``."""

    def create_branch(self, name: str, version: TableVersion) -> bool:
        """Begin a branch at a version, which stays as long as the branch does.  Return False if the name is taken.

        Raises ``VersionGone`` if the version does not exist.  A clean-up that had begun before may take the version
        nevertheless.  So the caller must look for the version afterwards.
        """

    def note_branch(self, name: str, notes: Mapping[str, str]) -> None:
        """Replace the branch's metadata."""

    def drop_branch(self, name: str) -> bool:
        """Remove a branch and all objects that only it needs, also leftovers of an interrupted ``create_branch``.

        Return False if nothing of the branch exists.  Raise the error of ``names_fault`` while there is one: another
        branch may need the same objects."""

    def transaction(self, version: int) -> TransactionResult: ...

    def write_rows(self, rows: pa.Table, field_ids: Mapping[str, Sequence[int]] | None = None) -> tuple[str, ...]:
        """Write rows as data files of the table that no version refers to yet; return fragments as JSON.

        A version reads columns of a file by their field ids, whatever their names were.  ``field_ids`` has those of each
        column, nested ones included, depth first, and the table need not have them.  None: those of the table.
        """

    def files_missing(self, files: Sequence[str]) -> Sequence[str]:
        """Return those of the named data files that are not in the data folder."""

    def read_unadopted(
        self, fragments: Sequence[str], columns: Sequence[str], rows: range | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of fragments that ``write_rows`` wrote and no version refers to.

        ``rows`` chooses some of all their rows, counted over the fragments in order.  ``ObjectMissing`` names a lost
        file."""

    def file_bytes(self, files: Sequence[str]) -> Sequence[int]:
        """Return the sizes of the named data files in bytes.  Raises ``VersionGone`` if a file is missing."""

    def rewrite(self, version: int, fragment_ids: Sequence[int], bounds: RewriteBounds) -> tuple[str, ...]:
        """Rewrite the live rows of a version's fragments, as data files that no version refers to; return fragments as
        JSON.

        Raises ``VersionGone`` if a clean-up was faster, ``RewriteFailed`` if the fragments could not be rewritten.
        """

    def commit(self, commit: TableCommit) -> CommitOutcome: ...

    def change_columns(self, commit: ColumnsCommit) -> CommitOutcome: ...

    def extend_index(self, name: str, merged_segments: int) -> CommitOutcome:
        """Let an index cover all rows of the newest version, by one new segment for rows that no segment covers yet.

        The new segment takes in the newest ``merged_segments`` segments too.  ``CommitLost``: the call failed, and
        nobody knows whether the commit landed.
        """

    def rebuild_index(self, name: str) -> CommitOutcome:
        """Rebuild an index from the newest version's rows, with the parameters that it has.  One segment takes the
        place of all its segments.

        Outcomes are those of ``extend_index``; also ``CommitLost`` if the parameters are not known.  Rows that the
        index cannot take are left out, by address."""


def index_in_between(read: PinnedTable, table: StoredTable, commit: TableCommit) -> Conflicted | None:
    """Return ``Conflicted`` if an index of a column that the commit writes has come since the version read (guarantee
    5); else None.  Lance would rebase the commit over such an index."""
    if not commit.columns_written:
        return None
    newest = table.newest()
    if newest.version == read.version:
        return None
    written = {read.field_ids[name][0] for name in commit.columns_written}
    known = {(index.name, _ids(index, read)) for index in read.indexes()}
    for index in newest.indexes():
        over = _ids(index, newest)
        if (index.name, over) not in known and not over.isdisjoint(written):
            return Conflicted(
                f"index {index.name} of version {newest.version} is over a column that a commit read at version "
                f"{read.version} writes in place"
            )
    return None


def _ids(index: TableIndex, pinned: PinnedTable) -> frozenset[int]:
    """Return the ids of the columns that the index covers: a column may be renamed in between."""
    return frozenset(pinned.field_ids[name][0] for name in index.columns)


def version_exists(table: StoredTable, version: TableVersion) -> bool:
    """Return whether this version still exists; False if it was cleaned up."""
    try:
        return table.at(version).version == version
    except VersionGone:
        return False


def raise_file_lost(table: StoredTable, error: VersionGone, *versions: TableVersion) -> None:
    """Raise ``ObjectMissing`` instead of ``error`` if all these versions still exist: then the last one lacks a file."""
    if all(version_exists(table, version) for version in versions):
        raise ObjectMissing(f"table version {versions[-1]} refers to a file that is gone: {error}") from error
