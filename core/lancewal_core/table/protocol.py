"""The Lance table as the protocols need it: pinned versions, and commits with three outcomes.

Words
 - A commit *lands* when it becomes a table version.  Its *read version* is the version from which it was planned.
 - ``Merge``, ``Update``, ``Rewrite`` and ``Project`` are Lance's kinds of transactions.
 - A *physical row* is a row's number in its fragment, from 0, with deleted rows counted.  A *row address* is
   ``fragment id << 32 | physical row`` (uint64).
 - Fragments are passed as JSON text (Lance's ``FragmentMetadata``), so that values can be pickled and stored.

Guarantees that an implementation gives
 1. A ``PinnedTable`` never changes.  It raises ``VersionGone`` once a clean-up has removed its version.
 2. ``commit`` lands whole or not at all.  ``Committed``: it landed as this version.  ``Conflicted``: it did not land
    and never will; plan again.  ``CommitLost``: the outcome is unknown, and it may have landed; look for its uuid in
    the later versions.  If the read version is gone, the commit does not land, and the outcome is ``Conflicted`` or
    ``CommitLost``.
 3. Commits by ``Merge`` (``strict``) conflict with every merge from the same version.  Commits by ``Update`` conflict
    with commits that touch a common fragment, and are rebased over appends and index builds.  Commits by ``Rewrite``
    (``rewritten``) do the same, but also conflict with an index build that landed since their read version.
 4. Queries by an index find the rows that a scan finds, whatever commits do to fragments.  An index knows which
    fragments it covers, and rows of other fragments are scanned.  ``extend_index`` makes the index cover these too.
 5. A commit with ``columns_written`` conflicts if an index of such a column was made since its read version and had
    landed when ``commit`` was called.  Another index may land while Lance commits.  Or it may be built from an
    earlier version and land later.  Such an index does not cover the changed fragments, so guarantee 4 holds.  But
    one of its segments holds their old values, which an extension would bring back.  Code that extends indexes must
    check for that first (``fields_apart``).
 6. Commits by ``Project`` (``change_columns``) are rebased over appends, updates, deletes, rewrites and index builds,
    and these over them: values belong to fields by field id.  Two such commits conflict, and so do such a commit and
    a ``Merge``.
 7. A change of columns with ``fragments`` is a ``Merge``.  It conflicts with every commit since its read version that
    added or changed rows or columns.  Every such commit that was planned before it and lands after it conflicts with
    it, except an append.
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
"""Numbers of physical rows of one fragment."""
ROW_ADDRESS = "_rowaddr"
"""Name of the column with row addresses in scans."""
FIELD_NOT_USED = -2
"""Field id, in a fragment's JSON, of a column in a data file that the fragment does not use."""


@dataclass(frozen=True, slots=True)
class AllBut:
    """Argument of ``PinnedTable.scan``: all rows except those at these row addresses, which must ascend."""

    addresses: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Fragment:
    """One fragment of a pinned version."""

    fragment_id: int
    files: tuple[str, ...]
    """Names of the fragment's data files in the table's data folder."""
    physical_rows: int
    """Number of physical rows, deleted ones included."""
    deleted_rows: int
    nbytes: int
    """Sum of the recorded sizes of the fragment's data files, in bytes.  Files without a recorded size count 0."""
    file_fields: tuple[tuple[int, ...], ...] = ()
    """Ids of the fields that each data file holds, in the order of ``files``.  Empty: each file holds all fields.  An
    empty entry: no file alone holds the values of a column."""
    deletion_file: str | None = None
    """Id of the fragment's deletion file, which no other deletion file of the fragment has.  None: no row is
    deleted."""

    @property
    def live_rows(self) -> int:
        return self.physical_rows - self.deleted_rows


def key_file(fragment: Fragment, field_ids: Sequence[int]) -> str | None:
    """Return the name of the data file of a fragment that holds all these fields; None if no single file does."""
    if not fragment.file_fields:
        return fragment.files[0] if len(fragment.files) == 1 else None
    wanted = set(field_ids)
    for name, fields in zip(fragment.files, fragment.file_fields, strict=True):
        if wanted.issubset(fields):
            return name
    return None


def fields_apart(fragment: Fragment, field_ids: Iterable[int]) -> bool:
    """Return whether one of these fields may have been rewritten by ``PinnedTable.write_columns``.

    The fragment's first file has all fields that were written with its rows.  A rewritten field lies in a later file.
    So does the field of a column that was added later; the files do not show which of the two it is."""
    later = {i for fields in fragment.file_fields[1:] for i in fields}
    return not later.isdisjoint(field_ids) or (not all(fragment.file_fields) and bool(fragment.file_fields))


def fragment_files(fragment_json: str) -> tuple[str, ...]:
    """Return the names of the data files of a fragment."""
    return tuple(file["path"] for file in json.loads(fragment_json)["files"])


def files_of(fragments: Iterable[str]) -> frozenset[str]:
    """Return the names of the data files of all these fragments."""
    return frozenset(name for fragment in fragments for name in fragment_files(fragment))


def rows_by_fragment(addresses: Iterable[int]) -> dict[int, list[int]]:
    """Return the physical rows at row addresses, by fragment id.  The rows of a fragment are in the order of the
    addresses."""
    found: dict[int, list[int]] = {}
    for address in addresses:
        found.setdefault(int(address) >> 32, []).append(int(address) & 0xFFFFFFFF)
    return found


def fragment_rows(fragment_json: str) -> int:
    """Return the number of physical rows of a fragment."""
    return int(json.loads(fragment_json)["physical_rows"])


def rows_of_fragments(fragments: Iterable[str], rows: range | None) -> Iterator[tuple[str, range | None]]:
    """Yield each fragment that has some of ``rows``, with the physical rows that are chosen in it.

    ``rows`` counts the physical rows of all fragments in order; None: all rows are chosen.  A yielded None means all
    rows of the fragment."""
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
    """Return the deletion file in a fragment's JSON, as Lance describes it; None if no row is hidden."""
    found: Mapping[str, Any] | None = json.loads(fragment_json).get("deletion_file")
    return found


def fragment_objects(fragment_json: str) -> dict[str, int]:
    """Return the keys of a fragment's data files and deletion file in the table's own folder, with their sizes in
    bytes.

    A size that is not recorded is 0; this is so for each deletion file.  Files in other folders are left out."""
    content = json.loads(fragment_json)
    files = [file for file in content["files"] if file.get("base_id") is None]
    found = {f"{paths.DATA}{file['path']}": file.get("file_size_bytes") or 0 for file in files}
    deletion = hidden_by(fragment_json)
    if deletion and deletion.get("base_id") is None:
        ending = "arrow" if deletion["file_type"] == "array" else "bin"
        found[f"{paths.DELETIONS}{content['id']}-{deletion['read_version']}-{deletion['id']}.{ending}"] = 0
    return found


def fragment_bytes(fragment_json: str) -> int:
    """Return the sum of the recorded sizes of a fragment's data files, in bytes."""
    return sum(file.get("file_size_bytes") or 0 for file in json.loads(fragment_json)["files"])


def without_fields(fragment_json: str, gone: Collection[int]) -> str:
    """Return the JSON of a fragment without the fields whose ids are in ``gone``.

    The values stay in the data files, but no field refers to them.  Lance may give such an id to a column that another
    program adds; without this change the old values would show in that column."""
    found = json.loads(fragment_json)
    return json.dumps({**found, "files": files_without_fields(found["files"], gone)})


def files_without_fields(files: Iterable[Mapping[str, Any]], gone: Collection[int]) -> list[dict[str, Any]]:
    """Return data files, in the form of a fragment's JSON, without the fields whose ids are in ``gone``.  A file that
    has no other field is left out, as Lance does it."""
    left = [{**file, "fields": [FIELD_NOT_USED if i in gone else i for i in file["fields"]]} for file in files]
    return [file for file in left if any(i != FIELD_NOT_USED for i in file["fields"])]


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit that changes rows: new and changed fragments, as JSON, and the properties of the transaction."""

    read_version: TableVersion
    """Version from which the commit was planned."""
    new_fragments: tuple[str, ...]
    updated_fragments: tuple[str, ...]
    removed_fragment_ids: tuple[int, ...]
    properties: Mapping[str, str]
    strict: bool
    """Whether to commit as ``Merge`` with ``new_fragments`` as all fragments.  For a table without fragments, which
    has no sentinel."""
    rewritten: tuple[str, ...] = ()
    """Old fragments (JSON) of a commit as ``Rewrite``, by ascending id.  ``new_fragments`` hold their live rows in this
    order, and nothing else changes."""
    columns_written: tuple[str, ...] = ()
    """Names of the columns that ``write_columns`` wrote in ``updated_fragments``.  Indexes of these columns no longer
    cover these fragments."""


@dataclass(frozen=True, slots=True)
class ColumnsCommit:
    """A commit that changes the table's columns.

    The commit can add columns and members of structs, with nulls in all rows.  It can rename, drop and reorder them.  A
    field that keeps its id keeps its type.  To get another type, a column gets another id and new data files with its
    values (``PinnedTable.write_widened``), which ``fragments`` name."""

    read_version: TableVersion
    """Version from which the commit was planned."""
    schema: pa.Schema
    """All columns of the new version, in its order.  Added columns must be nullable."""
    field_ids: Mapping[str, tuple[int, ...]]
    """Column name to the ids of its field and, depth first, of its nested fields.  A field that stays keeps its id."""
    properties: Mapping[str, str]
    mark: str | None = None
    """Text that ``columns_mark`` returns for the new version and later ones (``columns.Mark``); None: it returns
    None."""
    fragments: tuple[str, ...] | None = None
    """All fragments of the new version, as JSON.  None: the fragments stay, including those that landed since the read
    version."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit landed as ``version``.  ``pinned`` is this version, or None if it was not opened."""

    version: TableVersion
    pinned: PinnedTable | None = field(default=None, compare=False)
    far_rows: tuple[int, ...] = field(default=(), compare=False)
    """After ``rebuild_index``: addresses of rows that the index was built without, since it cannot hold their
    vectors."""


@dataclass(frozen=True, slots=True)
class Conflicted:
    """The commit did not land and never will; plan again."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommitLost:
    """The outcome is unknown: the commit may have landed."""

    cause: str
    far_rows: tuple[int, ...] = ()
    """After ``extend_index``: addresses of rows because of which the extension failed, since the index cannot hold
    their vectors.  ``rebuild_index`` leaves them out."""


CommitOutcome = Committed | Conflicted | CommitLost


@dataclass(frozen=True, slots=True)
class RewriteBounds:
    """Bounds for rewriting fragments: memory, and sizes of the new files."""

    batch_bytes: int
    """Approximate bytes of the rows in one batch in memory."""
    buffer_bytes: int
    """Largest number of bytes that are read before they are written."""
    file_rows: int
    """Number of rows after which the next data file begins."""
    file_bytes: int
    """Approximate number of bytes after which the next data file begins."""
    copy: bool
    """Whether to copy the files' pages unchanged if no row is deleted and the files allow it.  Otherwise rows are
    decoded and encoded."""


@dataclass(frozen=True, slots=True)
class TableIndex:
    """A secondary index.  A query searches all segments of the index, and scans fragments that no segment covers."""

    name: str
    segments: tuple[frozenset[int], ...]
    """Ids of the live fragments that each segment covers, oldest segment first."""
    columns: frozenset[str] = frozenset()
    """Top-level columns that the index is over, whole or by a member of a struct."""
    row_bytes: float = 0.0
    """Average stored bytes that a row takes in the index; 0 if Lance does not report the size."""
    kind: str = ""
    """Lance's name of the index type, e.g. ``BTree``, ``Inverted``, ``IVF_PQ``."""
    named: tuple[frozenset[int], ...] = ()
    """Ids of the fragments that each segment names, including fragments that no longer exist."""
    versions: tuple[int, ...] = ()
    """For each segment, the table version from which its oldest entries were built."""
    extends_alone: bool = True
    """Whether an extension can make a segment of only the uncovered rows.  Otherwise it must replace at least one older
    segment."""

    @property
    def covered(self) -> frozenset[int]:
        """Ids of the live fragments that at least one segment covers."""
        return frozenset[int]().union(*self.segments)


@dataclass(frozen=True, slots=True)
class RewrittenFragments:
    """One replacement in a ``Rewrite``: the new fragments hold the live rows of the old fragments, in the same
    order."""

    old_ids: tuple[int, ...]
    """Ids of the old fragments, in the order of their rows."""
    new_files: tuple[str, ...]
    """Name of the first data file of each new fragment, in the order of their rows.  A transaction does not have the
    ids that the commit gave to new fragments."""


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """Transaction that made a version."""

    operation: str
    """Lance's name for the kind of the transaction, e.g. ``Update``, ``Append``, ``Restore``."""
    read_version: int
    """Version from which the transaction was planned.  If Lance has rebased it, the version right before the new
    one."""
    properties: Mapping[str, str] = field(default_factory=dict)
    restored: int | None = None
    """Version whose content a ``Restore`` brought back; None for other transactions."""
    rewritten: tuple[RewrittenFragments, ...] = ()
    """Replacements of fragments by a ``Rewrite``; empty for other transactions."""


@dataclass(frozen=True, slots=True)
class TransactionUnreadable:
    """The version exists, but Lance's Python package cannot read its transaction.  One case is a compaction that
    rewrote an index."""


@dataclass(frozen=True, slots=True)
class TransactionGone:
    """The version was removed by a clean-up."""


TransactionResult = TransactionInfo | TransactionUnreadable | TransactionGone


@dataclass(frozen=True, slots=True)
class Branch:
    """A Lance branch: a sequence of versions of its own, which begins at a version of the table."""

    name: str
    version: TableVersion
    """Version of the table at which the branch began."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Metadata of the branch, which ``note_branch`` writes."""


COLUMNS_MARK = b"lancewal.columns"
"""Key of ``ColumnsCommit.mark`` in the metadata of a version's schema.  Commits of all kinds keep it, except restore
and overwrite."""


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
        """Version of Lance's file format that the table uses, such as 2.2."""

    @property
    def field_ids(self) -> Mapping[str, tuple[int, ...]]:
        """Column name to Lance's ids of its field and, depth first, of its nested fields."""

    def fragments(self) -> Sequence[Fragment]:
        """Return the live fragments by ascending id."""

    def fragment_ids(self) -> npt.NDArray[np.int64]:
        """Return the ids of the live fragments, ascending; for many fragments this is faster than ``fragments``."""

    def fragment(self, fragment_id: int) -> Fragment:
        """Return a live fragment."""

    def fragment_json(self, fragment_id: int) -> str:
        """Return a live fragment as JSON, exactly as Lance has it, so that a commit can list it unchanged."""

    def indexes(self) -> Sequence[TableIndex]:
        """Return the secondary indexes that users have made."""

    @property
    def stable_row_ids(self) -> bool:
        """Whether rows keep their ids when fragments are rewritten."""

    def updated_rows(self) -> frozenset[tuple[int, int]]:
        """Return pairs ``(version that made a row, version that updated it most recently)`` for updated rows.

        Only live rows count that kept their row id.  The result is empty for tables without stable row ids.  There an
        update makes another row, or writes a file that ``fields_apart`` finds.
        """

    def unrewritable_fragments(self) -> frozenset[int]:
        """Return the ids of live fragments that must not be rewritten, since queries by an index would be wrong
        afterwards."""

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
        """Yield live rows, in any order.  With ``with_row_address`` the last column is ``ROW_ADDRESS`` (uint64).

        ``filter``: condition in SQL.  ``fragment_ids``: only these fragments are scanned; None: all.  A range as
        ``rows`` limits the scan to these physical rows of the one fragment in ``fragment_ids``.  A table with stable
        row ids must not be scanned with a range.
        """

    def take(self, addresses: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Return the live rows at these row addresses, in the order given."""

    def all_rows(self, fragment_id: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all physical rows of a fragment in their order, deleted ones too."""

    def hidden_rows(self, fragment_id: int) -> npt.NDArray[np.int64]:
        """Return the physical rows that the fragment's deletion vector hides, in any order."""

    def hide_rows(self, fragment_id: int, rows: RowNumbers) -> str | None:
        """Write a deletion vector that hides these physical rows too.  Return the fragment's JSON with it; None if no
        row would be left."""

    def column_bytes(self, fragment_id: int, columns: Sequence[str]) -> Mapping[str, int] | None:
        """Return the stored bytes of each of these columns in a fragment.  Return None if ``write_columns`` must not be
        used on the fragment."""

    def write_columns(self, fragment_id: int, rows: npt.NDArray[np.int64], values: pa.Table, fragment_json: str) -> str:
        """Rewrite the columns of ``values`` in a fragment, as one more data file.  Return the fragment's JSON with this
        file.

        ``rows`` are live physical rows, which get ``values``; all other rows keep theirs.  ``fragment_json`` is the
        fragment's JSON, unchanged or as ``hide_rows`` returned it.  Its deletion vector stays in the result.  Raise
        ``VersionGone`` if a clean-up removed the version during the call.  Raise ``RewriteFailed`` if the columns could
        not be rewritten.
        """

    def write_widened(self, fragment_id: int, schema: pa.Schema, field_ids: Mapping[str, Sequence[int]]) -> str:
        """Write the columns of ``schema`` again for all physical rows of a fragment, as one more data file.  Return the
        fragment's JSON with this file.

        ``schema`` has the wider types.  ``field_ids`` has the new ids: by column name those of its field and, depth
        first, of its nested fields.  Raise ``VersionGone`` if a clean-up removed the version during the call.  Raise
        ``RewriteFailed`` if the columns could not be rewritten.
        """


def columns_mark(pinned: PinnedTable) -> str | None:
    """Return the text that names the change which gave a version its columns (``columns.Mark``); None if it has
    none."""
    metadata: dict[bytes, bytes] = pinned.schema.metadata or {}
    mark = metadata.get(COLUMNS_MARK)
    return None if mark is None else mark.decode(errors="replace")


class StoredTable(Protocol):
    """The table: its newest version, and past ones.  If the store does not answer, methods raise ``StoreUnavailable``.
    Methods that commit return ``CommitLost`` if the outcome of the commit is unknown."""

    def newest(self) -> PinnedTable: ...

    def at(self, version: int) -> PinnedTable:
        """Open a version.  Raise ``VersionGone`` if a clean-up has removed it."""

    def opened(self, version: int) -> PinnedTable:
        """Return a version as ``at`` does, but without a request if this object has opened it most recently.

        If the version was removed since, only a later read of missing files shows that."""

    def versions(self) -> Sequence[TableVersion]:
        """Return all versions that exist, tagged ones too, in any order."""

    def commit_time(self, version: int) -> int:
        """Return the time when the version was committed: milliseconds since 1970, by the clock of the process that
        committed it.

        This reads the version's manifest.  Raise ``VersionGone`` if there is none.
        """

    def stored_versions(self) -> Mapping[TableVersion, int]:
        """Return ``versions``, each with the time when it was stored: milliseconds since 1970, by the store's clock.
        This costs one listing."""

    def remove_versions(self, versions: Sequence[TableVersion]) -> None:
        """Remove versions and the files that only they need.  The newest version, and versions that a tag or a branch
        needs, stay.

        Files that no version has named yet stay for days, since a commit may be about to name them."""

    def branches(self, beginning: str = "") -> Sequence[Branch]:
        """Return all branches that can be read, sorted by name.  Without branches this costs one listing.

        ``beginning``: only branches whose names begin with this text.  They cost one listing, and a request each."""

    def find_branch(self, name: str) -> Branch | None:
        """Return the branch of this name; None if there is none, or if it cannot be read.  This costs one request."""

    def names_fault(self) -> ObjectCorrupt | None:
        """Return the error that says why not all names of branches and tags can be read; None if all can be read.

        While there is an error, nobody knows which versions branches and tags need."""

    def branch(self, name: str) -> StoredTable:
        """Return a branch as a table.  Its version numbers continue from the version at which the branch began.

        If the branch does not exist, ``newest`` raises ``TableMissing``, and ``at`` raises ``VersionGone``."""

    def create_branch(self, name: str, version: TableVersion) -> bool:
        """Begin a branch at a version, which stays as long as the branch does.  Return False if the name is taken.

        Raise ``VersionGone`` if the version does not exist.  A clean-up that began before this call may still remove
        the version.  So the caller must check afterwards that the version exists.
        """

    def note_branch(self, name: str, notes: Mapping[str, str]) -> None:
        """Replace the branch's metadata by ``notes``."""

    def drop_branch(self, name: str) -> bool:
        """Remove a branch and all objects that only it needs.  This also removes what an interrupted ``create_branch``
        has left.

        Return False if nothing of the branch exists.  Raise the error of ``names_fault`` while there is one, since
        another branch may need the same objects."""

    def transaction(self, version: int) -> TransactionResult: ...

    def write_rows(self, rows: pa.Table, field_ids: Mapping[str, Sequence[int]] | None = None) -> tuple[str, ...]:
        """Write rows as data files that no version refers to yet, and return their fragments as JSON.

        ``field_ids``: by column name the ids of its field and, depth first, of its nested fields; None: those of the
        table.  A version reads the columns of a file by these ids, whatever names they have in the file.  The table
        need not have the fields.
        """

    def files_missing(self, files: Sequence[str]) -> Sequence[str]:
        """Return the names in ``files`` of data files that do not exist in the table's data folder."""

    def read_unadopted(
        self, fragments: Sequence[str], columns: Sequence[str], rows: range | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of fragments (JSON) that ``write_rows`` wrote and that no version refers to.

        ``rows`` chooses some of all rows, counted over the fragments in order; None: all rows.  Raise
        ``ObjectMissing``, which names the file, if a file is lost."""

    def file_bytes(self, files: Sequence[str]) -> Sequence[int]:
        """Return the sizes of the named data files in bytes.  Raise ``VersionGone`` if a file is missing."""

    def rewrite(self, version: int, fragment_ids: Sequence[int], bounds: RewriteBounds) -> tuple[str, ...]:
        """Write the live rows of a version's fragments again, as data files that no version refers to yet.  Return
        the new fragments as JSON.

        Raise ``VersionGone`` if a clean-up removed the version during the call.  Raise ``RewriteFailed`` if the
        fragments could not be rewritten.
        """

    def commit(self, commit: TableCommit) -> CommitOutcome: ...

    def change_columns(self, commit: ColumnsCommit) -> CommitOutcome: ...

    def extend_index(self, name: str, merged_segments: int) -> CommitOutcome:
        """Make an index cover all rows of the newest version, by one new segment for the rows that no segment covers
        yet.

        The new segment also replaces the newest ``merged_segments`` segments.  ``CommitLost``: the call failed, and
        nobody knows whether the commit landed.
        """

    def rebuild_index(self, name: str) -> CommitOutcome:
        """Rebuild an index from the newest version's rows, with its present parameters.  One segment replaces all its
        segments.

        The outcomes are as for ``extend_index``.  If the parameters are not known, nothing is built, and the outcome is
        ``CommitLost``.  Rows whose vectors the index cannot hold are left out (``Committed.far_rows``)."""


def index_in_between(read: PinnedTable, table: StoredTable, commit: TableCommit) -> Conflicted | None:
    """Return ``Conflicted`` if an index of a column in ``commit.columns_written`` was made since the version ``read``
    (guarantee 5); else None.  Lance itself would rebase the commit over such an index."""
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
                f"index {index.name!r} of version {newest.version} is over a column that the commit writes in place. The "
                f"index was made after version {read.version}, from which the commit was planned"
            )
    return None


def _ids(index: TableIndex, pinned: PinnedTable) -> frozenset[int]:
    """Return the field ids of the columns that the index is over.  Ids stay when a column is renamed."""
    return frozenset(pinned.field_ids[name][0] for name in index.columns)


def version_exists(table: StoredTable, version: TableVersion) -> bool:
    """Return whether this version still exists; False if a clean-up has removed it."""
    try:
        return table.at(version).version == version
    except VersionGone:
        return False


def raise_file_lost(table: StoredTable, error: VersionGone, *versions: TableVersion) -> None:
    """Raise ``ObjectMissing`` from ``error`` if all these versions still exist: then the one given last lacks a file.
    Otherwise return."""
    if all(version_exists(table, version) for version in versions):
        raise ObjectMissing(f"table version {versions[-1]} refers to a file that is gone: {error}") from error
