"""``StoredTable`` over a real Lance data set.

Commits are sent **by URI, never by an open data set object**.  Lance looks for conflicts only in versions that still
exist.  If the read version itself was cleaned up, only a commit by URI fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa
from lance import LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.file import LanceFileSession
from lance.fragment import FragmentMetadata
from lance.lance import _Session as LanceSession

from lancewal_core.errors import (
    BasePathsRefused,
    ObjectCorrupt,
    ObjectMissing,
    RewriteFailed,
    StoreUnavailable,
    TableMissing,
    VersionGone,
    WriteFailed,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.names.paths import VERSIONS, data_file, parse_table_version
from lancewal_core.process.library_errors import first_line
from lancewal_core.process.tasks import use_threads
from lancewal_core.store.address import local_folder, no_table_advice, table_address
from lancewal_core.store.folder import FolderStore, folders_in, refuse_links
from lancewal_core.store.obstore import TableStore, open_store
from lancewal_core.table.lance.base_paths import BasePaths, check_base_paths
from lancewal_core.table.lance.branches import Branches
from lancewal_core.table.lance.deletions import DeletionFiles
from lancewal_core.table.lance.errors import (
    IO_ERROR,
    file_corrupt,
    is_panic,
    no_panic,
    read_error,
    reading,
    says_gone,
    writing,
)
from lancewal_core.table.lance.fields import with_fields
from lancewal_core.table.lance.index_build import (
    IndexBuild,
    build_again,
    build_without,
    far_rows,
    index_build,
    known_build,
    meets_far_rows,
)
from lancewal_core.table.lance.pinned import LancePinnedTable, field_ids_of
from lancewal_core.table.lance.rewrite import rewrite_fragments
from lancewal_core.table.lance.row_files import RowFiles
from lancewal_core.table.protocol import (
    COLUMNS_MARK,
    Branch,
    ColumnsCommit,
    CommitLost,
    CommitOutcome,
    Committed,
    Conflicted,
    RewriteBounds,
    RewrittenFragments,
    TableCommit,
    TransactionGone,
    TransactionInfo,
    TransactionResult,
    TransactionUnreadable,
    fragment_files,
    index_in_between,
    rows_of_fragments,
)

_CONFLICT = "commit conflict"
_LOCAL_BLOCK_BYTES = 1 << 16
"""Parts of a local file that are at most this many bytes apart are read in one piece, as Lance does for object stores.

Reading each part by itself takes longer than copying the bytes between them.  (1,000 rows of 5 M, seven columns: 60
ms of processor time instead of 100.)"""


class LanceTable:
    """The data set at ``uri``; ``options`` are Lance storage options.

    Each version that is opened, to be read or committed to, is checked.  ``BasePathsRefused`` is raised unless all its
    files lie in the table's folder, or ``base_paths`` allows others.  ``LinkRefused`` is raised if one of Lance's
    folders there is a link."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None, base_paths: BasePaths = "refuse") -> None:
        table_address(uri)
        self.uri = uri
        self._root = uri
        """Address of the folder in which all files must lie.  For a branch this is its table's folder."""
        self._base_paths = base_paths
        self._options = dict(options or {})
        self._store: TableStore | None = None
        self._deletions: DeletionFiles | None = None
        self._files: LanceFileSession | None = None
        self._row_files = RowFiles(uri, lambda: self.newest().dataset)
        # Lance takes a data set for itself while it makes or drops a branch, reads a transaction or builds an index: not one
        # that other threads go on with.
        self._branches = Branches(
            uri, lambda: self._open().dataset, lambda version: self._open(version).dataset, self._objects
        )
        self._opened: LancePinnedTable | None = None
        """The version that ``newest`` or ``at`` has opened most recently."""
        self._block_size = _LOCAL_BLOCK_BYTES if local_folder(uri) is not None else None
        self._session = LanceSession(index_cache_size_bytes=256 << 20, metadata_cache_size_bytes=128 << 20)

    def newest(self) -> LancePinnedTable:
        self._opened = found = self._open()  # another thread may set another one at once
        return found

    def at(self, version: int) -> LancePinnedTable:
        self._opened = found = self._open(version)
        return found

    def _open(self, version: int | None = None) -> LancePinnedTable:
        """Open a version, or the newest for None, as an object that only the caller uses."""
        use_threads()
        what = self.uri if version is None else f"version {version} of {self.uri}"
        try:
            with no_panic(f"opening {what}"):
                opened = lance.dataset(
                    self.uri,
                    version=version,
                    storage_options=self._options,
                    session=self._session,
                    block_size=self._block_size,
                )
        except (ValueError, OSError) as error:
            self._refuse_folders()
            if not isinstance(error, ValueError) or not says_gone(error):
                raise self._why_not_opened(error, what, version) from (None if isinstance(error, ValueError) else error)
            if version is None:
                raise TableMissing(f"there is no Lance table at {self.uri}. {no_table_advice(self.uri)}") from error
            raise VersionGone(f"{what} is gone: a clean-up removed it", version=version) from error
        return self._pinned(opened)

    def opened(self, version: int) -> LancePinnedTable:
        last = self._opened
        return last if last is not None and last.version == version else self.at(version)

    def _pinned(self, opened: Any) -> LancePinnedTable:
        self._check_folder()
        self._refuse_links()
        return self._checked(opened)

    def versions(self) -> Sequence[TableVersion]:
        return sorted(self.stored_versions())  # Lance would read the manifest of each

    def commit_time(self, version: int) -> int:
        return int(self.at(version).dataset.get_version()["timestamp"].timestamp() * 1000)

    def stored_versions(self) -> Mapping[TableVersion, int]:
        found = {}
        for info in self._objects().list(VERSIONS):
            version = parse_table_version(info.key)
            if version is not None:
                found[version] = info.modified_ms
        return found

    def remove_versions(self, versions: Sequence[TableVersion]) -> None:
        opened = self.newest().dataset
        self._refuse_links(below=True)  # Lance would delete what they lead to
        with reading(f"removing old versions of {self.uri}", names_nothing=True):
            opened.cleanup_old_versions(
                versions=[int(version) for version in versions],
                delete_unverified=False,
                error_if_tagged_old_versions=False,
            )

    def branches(self, beginning: str = "") -> Sequence[Branch]:
        return self._branches.beginning(beginning) if beginning else self._branches.all()

    def names_fault(self) -> ObjectCorrupt | None:
        return self._branches.fault()

    def find_branch(self, name: str) -> Branch | None:
        return self._branches.find(name)

    def branch(self, name: str) -> LanceTable:
        found = LanceTable(f"{self.uri.rstrip('/')}/{paths.branch_folder(name)}", self._options, self._base_paths)
        found._root = self._root
        return found

    def create_branch(self, name: str, version: TableVersion) -> bool:
        self.branch(name)._refuse_links(below=True)
        return self._branches.create(name, version)

    def note_branch(self, name: str, notes: Mapping[str, str]) -> None:
        self._branches.note(name, notes)

    def drop_branch(self, name: str) -> bool:
        self.branch(name)._refuse_links(below=True)
        return self._branches.drop(name)

    def transaction(self, version: int) -> TransactionResult:
        try:
            dataset = self._open(version).dataset
        except VersionGone:
            return TransactionGone()
        act = f"reading the transaction of version {version}"
        try:
            with no_panic(act):
                transaction = dataset.read_transaction(version)
        except (TypeError, ValueError, OSError) as error:
            if isinstance(error, ValueError) and says_gone(error):
                return TransactionGone()
            if isinstance(error, OSError) or IO_ERROR in str(error):
                raise read_error(error, act) from error
            # The manifest was just read, so the version exists; only its transaction does not convert.
            return TransactionUnreadable()
        operation = transaction.operation
        return TransactionInfo(
            type(operation).__name__,
            transaction.read_version,
            dict(transaction.transaction_properties or {}),
            operation.version if isinstance(operation, LanceOperation.Restore) else None,
            tuple(map(_rewritten, operation.groups)) if isinstance(operation, LanceOperation.Rewrite) else (),
        )

    def write_rows(self, rows: pa.Table, field_ids: Mapping[str, Sequence[int]] | None = None) -> tuple[str, ...]:
        self._check_folder()
        return self._row_files.write(rows, field_ids)

    def files_missing(self, files: Sequence[str]) -> Sequence[str]:
        return [name for name in files if self._objects().size(data_file(name)) is None]

    def read_unadopted(
        self, fragments: Sequence[str], columns: Sequence[str], rows: range | None = None
    ) -> Iterator[pa.RecordBatch]:
        for fragment, own in rows_of_fragments(fragments, rows):
            (name,) = fragment_files(fragment)  # written by write_rows: one file each
            try:
                with reading(f"reading data file {name}", name):
                    reader = self._file_session().open_reader(data_file(name), list(columns))
                    if own is None:
                        found = reader.read_all(batch_size=65_536)
                    else:
                        found = reader.read_range(own.start, len(own), batch_size=65_536)
                    yield from found.to_batches()
            except VersionGone as error:
                # Lance finds something else than the file not, where its bytes are damaged.
                if not self.files_missing([name]):
                    raise file_corrupt(name, error) from error
                raise ObjectMissing(
                    f"data file {name!r} of an unmerged flush is missing in {self.uri}", file=name
                ) from error

    def file_bytes(self, files: Sequence[str]) -> Sequence[int]:
        sizes = [self._objects().size(data_file(name)) for name in files]
        for name, size in zip(files, sizes, strict=True):
            if size is None:
                raise VersionGone(f"data file {name!r} of {self.uri} is gone", file=name)
        return [size for size in sizes if size is not None]

    def rewrite(self, version: int, fragment_ids: Sequence[int], bounds: RewriteBounds) -> tuple[str, ...]:
        try:
            with reading(f"reading version {version}", names_nothing=True), writing(f"rewriting version {version}"):
                written = rewrite_fragments(self.at(version).dataset, fragment_ids, bounds)
        except (StoreUnavailable, WriteFailed, ObjectCorrupt, RuntimeError, ValueError) as error:
            raise RewriteFailed(
                f"fragments {sorted(fragment_ids)[:5]} of version {version} could not be rewritten: {first_line(error)}",
                version=version,
            ) from error
        for file in (file for fragment in written for file in fragment["files"]):
            if not file.get("file_size_bytes"):  # of files whose pages were copied
                (file["file_size_bytes"],) = self.file_bytes([file["path"]])
        return tuple(json.dumps(fragment) for fragment in written)

    def extend_index(self, name: str, merged_segments: int) -> CommitOutcome:
        return self._indexing(
            name, lambda d: d.optimize.optimize_indices(index_names=[name], num_indices_to_merge=merged_segments)
        )

    def rebuild_index(self, name: str) -> CommitOutcome:
        dataset = self._open().dataset
        try:
            return self.build_index_again(dataset, known_build(dataset, name))
        except BaseException as error:
            return _not_indexed(error)

    def build_index_again(self, dataset: Any, build: IndexBuild) -> Committed:
        """Rebuild an index as ``rebuild_index`` does, from the rows of the version ``dataset``.  Raise Lance's errors
        as they are."""
        try:
            build_again(dataset, build)
        except (OSError, RuntimeError, ValueError) as error:
            if not meets_far_rows(error):
                raise
            far = far_rows(dataset, build)
            if not len(far):
                raise
        else:
            return Committed(TableVersion(dataset.version))
        operation = build_without(dataset, build, far, lambda key: self._objects().delete([key]))
        transaction = Transaction(dataset.version, operation)
        landed = lance.LanceDataset.commit(self.uri, transaction, storage_options=self._options)
        return Committed(TableVersion(landed.version), far_rows=tuple(far.tolist()))

    def _indexing(self, name: str, act: Callable[[Any], object]) -> CommitOutcome:
        pinned = self._open()
        try:
            act(pinned.dataset)
        except BaseException as error:
            outcome = _not_indexed(error)
            build = index_build(pinned.dataset, name) if meets_far_rows(error) else None
            if build is None or not isinstance(outcome, CommitLost):
                return outcome
            covered = next(index.covered for index in pinned.indexes() if index.name == name)
            fragments = [f.fragment_id for f in pinned.fragments() if f.fragment_id not in covered]
            return replace(outcome, far_rows=tuple(far_rows(pinned.dataset, build, fragments).tolist()))
        return Committed(TableVersion(pinned.dataset.version))

    def commit(self, commit: TableCommit) -> CommitOutcome:
        try:
            base = self.opened(commit.read_version)  # if it is gone, Lance finds so, by the address
        except VersionGone as error:
            return Conflicted(str(error))
        indexed = index_in_between(base, self, commit)
        if indexed is not None:
            return indexed
        new = [FragmentMetadata.from_json(text) for text in commit.new_fragments]
        updated = [FragmentMetadata.from_json(text) for text in commit.updated_fragments]
        lance_schema = base.dataset.lance_schema
        operation: LanceOperation.BaseOperation
        if commit.strict:
            operation = LanceOperation.Merge(new, lance_schema)
        elif commit.rewritten:
            # No index is named as rewritten: each loses these fragments from what it covers.
            old = [FragmentMetadata.from_json(text) for text in commit.rewritten]
            operation = LanceOperation.Rewrite([LanceOperation.RewriteGroup(old, new)], [])
        else:
            operation = LanceOperation.Update(
                removed_fragment_ids=list(commit.removed_fragment_ids),
                updated_fragments=updated,
                new_fragments=new,
                fields_modified=field_ids_of([f for f in lance_schema.fields() if f.name() in commit.columns_written]),
                # All ids, nested ones too: else new rows can be missing from indexed queries.
                fields_for_preserving_frag_bitmap=field_ids_of(lance_schema.fields()),
                update_mode="rewrite_columns" if commit.columns_written else "rewrite_rows",
            )
        return self._send(commit.read_version, operation, commit.properties)

    def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
        try:
            base = self.opened(commit.read_version)
        except VersionGone as error:
            return Conflicted(str(error))
        metadata = {COLUMNS_MARK: None if commit.mark is None else commit.mark.encode()}
        schema = with_fields(base.dataset.lance_schema, commit.schema, commit.field_ids, metadata)
        operation: LanceOperation.BaseOperation
        if commit.fragments is None:
            # Columns that are added are nullable: without this Lance would refuse the commit after every append.
            operation = LanceOperation.Project(schema, preserves_nullability=True)
        else:
            operation = LanceOperation.Merge([FragmentMetadata.from_json(text) for text in commit.fragments], schema)
        return self._send(commit.read_version, operation, commit.properties)

    def _send(
        self, read_version: int, operation: LanceOperation.BaseOperation, properties: Mapping[str, str]
    ) -> CommitOutcome:
        self._check_folder()
        transaction = Transaction(read_version, operation, transaction_properties=dict(properties))
        try:
            landed = lance.LanceDataset.commit(self.uri, transaction, storage_options=self._options)
        except CommitConflictError as error:
            return Conflicted(first_line(error))
        except BaseException as error:
            if not (isinstance(error, (OSError, RuntimeError, ValueError)) or is_panic(error)):
                raise
            # Also "not found" is no verdict: Lance has been seen to raise it after the version had landed.
            return CommitLost(first_line(error))
        return Committed(TableVersion(landed.version), self._landed(landed))

    def _landed(self, opened: Any) -> LancePinnedTable | None:
        """Return the version that a commit has made, opened.  Return None if its base paths are refused; opening it
        later raises ``BasePathsRefused`` too."""
        try:
            return self._checked(opened)
        except BasePathsRefused:
            return None

    def _checked(self, opened: Any) -> LancePinnedTable:
        """Return the version in ``opened``, a ``lance.LanceDataset``.  Raise ``BasePathsRefused`` if files may lie
        elsewhere."""
        if self._base_paths == "refuse":
            check_base_paths(opened, self._root)
        return LancePinnedTable(opened, self._deletion_files, self._file_session)

    def _check_folder(self) -> None:
        """Raise ``TableMissing`` or ``StoreUnavailable`` if the table's local folder is gone.  A write by Lance would
        make the folder again."""
        if self._block_size is None:
            return
        objects = self._objects()  # opened with the first version, so it knows the folder
        if isinstance(objects, FolderStore):
            objects.check()

    def _refuse_links(self, *, below: bool = False) -> None:
        """Raise ``LinkRefused`` if one of Lance's folders is a symbolic link, since Lance follows all links.  With
        ``below``, raise it also for a link anywhere in these folders."""
        root = local_folder(self._root)
        if root is not None:
            inside = self.uri.removeprefix(self._root).strip("/")
            folders = [f"{inside}/{part}" if inside else part for part in paths.LANCE_FOLDERS]
            refuse_links(root, folders, below=below)

    def _refuse_folders(self) -> None:
        """Raise ``ObjectCorrupt`` if a folder lies in place of a manifest.  Lance only says that there is no table."""
        root = local_folder(self._root)
        if root is None or not root.is_dir():
            return
        inside = self.uri.removeprefix(self._root).strip("/")
        for key in folders_in(root, f"{inside}/{VERSIONS}".lstrip("/")):
            if parse_table_version(key.removeprefix(inside).lstrip("/")) is not None:
                raise ObjectCorrupt(
                    f"a folder lies at {key} in {self._root}, where a manifest belongs: put the manifest back from a copy",
                    object=key,
                )

    def _why_not_opened(self, error: BaseException, what: str, version: int | None) -> BaseException:
        """Return the error to raise if ``version``, or the newest for None, cannot be opened.  If a manifest is
        damaged, the error names it, which Lance's ``error`` does not."""
        found = read_error(error, f"opening {what}")
        if not isinstance(found, ObjectCorrupt):
            return found
        listed = [
            (v, info.key)
            for info in self._objects().list(VERSIONS)
            if (v := parse_table_version(info.key)) is not None and version in (None, v)
        ]
        key = max(listed)[1] if listed else VERSIONS
        named = "The newest manifest" if version is None else f"The manifest of version {version}"
        return ObjectCorrupt(f"{found}. {named} is {key}: put it back from a copy", object=key)

    def _file_session(self) -> LanceFileSession:
        """Return the session by which all files are opened.  Without a session, each opened file would cost a new
        client of the store, which takes 5 ms of processor time."""
        if self._files is None:
            with reading(f"opening {self.uri}"):
                self._files = LanceFileSession(self.uri, self._options)
        return self._files

    def _objects(self) -> TableStore:
        if self._store is None:
            self._store = open_store(self.uri, self._options)
        return self._store

    def _deletion_files(self) -> DeletionFiles:
        if self._deletions is None:
            self._deletions = DeletionFiles(self._objects())
        return self._deletions


def _rewritten(group: Any) -> RewrittenFragments:
    # ``path`` of a file makes a class at each call (Lance 14).
    return RewrittenFragments(
        tuple(fragment.id for fragment in group.old_fragments),
        tuple(fragment.files[0]._path for fragment in group.new_fragments),
    )


def _not_indexed(error: BaseException) -> CommitOutcome:
    """Return the outcome for an error of an index build; raise ``error`` if it is not an error of Lance.

    Lance panics (which is not an ``Exception``) for indexes that it can build but not extend."""
    if not (isinstance(error, (OSError, RuntimeError, ValueError)) or is_panic(error)):
        raise error
    text = first_line(error)
    return Conflicted(text) if _CONFLICT in text.lower() else CommitLost(text)
