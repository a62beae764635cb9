"""``open_table``: a lancewal table for readers in any process, straight from object storage.

Rounds of requests to the store (docs/reference/requests.md), as counted: 7 ("open and strong read").
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, get_args

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidInput
from lancewal_core.open import Address, open_at
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.store.address import place_of
from lancewal_core.store.json_object import is_whole
from lancewal_core.table.contract import Contract
from lancewal_core.table.lance.base_paths import BasePaths
from lancewal_core.table.snapshots import Snapshot, snapshots
from lancewal_core.wal.segment_cache import SegmentCache
from lancewal_reader.changes.feed import ChangeRows, Feeds, Mode
from lancewal_reader.changes.follow import Follow, follow, follow_options
from lancewal_reader.forms.given_keys import keys_of, region_key_of
from lancewal_reader.forms.pandas_frames import Dtypes
from lancewal_reader.point.at import Point
from lancewal_reader.point.read_options import Read, ReadOptions, read_options
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.reading.reads import Reads, Wanted, wanted_of
from lancewal_reader.reading.rows import Rows, limit_of, reader_of, to_pandas, to_polars
from lancewal_reader.search.found import SearchRows
from lancewal_reader.search.hybrid import SearchCaches, search
from lancewal_reader.search.merged import UnindexedVectors
from lancewal_reader.search.options import ASKED, Search, sought_of
from lancewal_reader.search.texts.text_query import TextQuery
from lancewal_reader.subscriptions import FollowedFeeds, Subscriptions
from lancewal_reader.unmerged.flushed import FlushCache
from lancewal_reader.unmerged.left_out import OnConflict
from lancewal_reader.unmerged.load import DeltaContext, folding_of
from lancewal_reader.unmerged.loaded import LoadedCache
from lancewal_reader.unmerged.portions import UNMERGED_KEYS_MAX, check_keys_max

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

CACHE_BYTES_MAX = 256 << 20
Columns: TypeAlias = Sequence[str] | None
"""Names of the wanted columns, in their order; None: all."""
Filter: TypeAlias = str | pc.Expression | None
"""A condition in Lance's SQL, or an expression that can be translated into one; None: all rows pass."""
Keys: TypeAlias = Iterable[Any] | pa.Table | pa.RecordBatch


def open_table(
    table: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    cache_bytes_max: int = CACHE_BYTES_MAX,
    unmerged_keys_max: int = UNMERGED_KEYS_MAX,
    base_paths: BasePaths = "refuse",
    conflicts: OnConflict = "leave-out",
) -> Table:
    """Open the table at an address (a local path, ``file://``, ``s3://``, ``gs://``, ``az://``, ``abfss://``) for
    reading.  Read-only credentials suffice.

    ``storage_options`` are Lance's.

    ``cache_bytes_max``: limit of the unmerged rows that are kept between reads, in bytes.  One half is for rows from
    the WAL, the other for rows from flushes.  In addition, the table keeps the last two states that were read, or the
    last state for each choice of columns.  For these states it keeps the addresses of the merged rows that unmerged
    rows replace.  Searches may keep as many bytes again, for vectors of merged rows that no index covers.

    ``unmerged_keys_max``: a read fails with ``TooManyUnmerged`` if more keys than this have unmerged records, because
    it would hold their rows in memory.

    ``base_paths``: a table with files outside its own folder, such as a shallow clone, is refused
    (``BasePathsRefused``) unless this is ``allow``.

    ``conflicts``: what a read does if records of a key came through two partitions, so that their order is unknown.
    ``leave-out`` omits these records and reports them (``left_out_of``).  ``fail`` raises ``RegionConflict``.

    Raises ``TableMissing``, ``NotALancewalTable``, ``TableReplaced`` or ``StoreUnavailable``.  Raises ``InvalidInput``
    for a wrong argument, and ``InvalidSettings`` for an address with user information.
    """
    if conflicts not in get_args(OnConflict):
        raise InvalidInput(f"conflicts {conflicts!r} is unknown: use 'leave-out' or 'fail'")
    if base_paths not in ("refuse", "allow"):
        raise InvalidInput(f"base_paths {base_paths!r} is unknown: use 'refuse' or 'allow'")
    if not is_whole(cache_bytes_max):
        raise InvalidInput(f"cache_bytes_max {cache_bytes_max!r}: expected a number of bytes from 0 on")
    check_keys_max(unmerged_keys_max)
    table = _text_of(table, "table", "its address: a local path, file://, or in a store")
    if any(not isinstance(text, str) for option in (storage_options or {}).items() for text in option):
        raise InvalidInput("storage_options: expected texts, as in {'allow_http': 'true'}")
    address = Address(table, storage_options, base_paths)
    opened = open_at(address, ThreadTasks(), SystemClock())
    reads = reads_of(opened, address.uri, cache_bytes_max, conflicts, unmerged_keys_max)
    return Table(reads, UnindexedVectors(cache_bytes_max))


def _text_of(path: object, argument: str, expected: str) -> str:
    """Return a path, given as text or as ``PathLike``, as text.  Raises ``InvalidInput`` for anything else."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise InvalidInput(f"{argument} {path!r}: expected {expected}, as text or a pathlib.Path")
    return text


def reads_of(
    opened: OpenedTable,
    table: str,
    cache_bytes_max: int = CACHE_BYTES_MAX,
    conflicts: OnConflict = "leave-out",
    unmerged_keys_max: int = UNMERGED_KEYS_MAX,
) -> Reads:
    """Return the ``Reads`` of an opened table, with caches of their own."""
    caches = SegmentCache(cache_bytes_max // 2), FlushCache(cache_bytes_max // 2), LoadedCache()
    context = DeltaContext(*opened.parts, *caches, folding_of(opened.contract, conflicts), unmerged_keys_max)
    return Reads(table, place_of(table), context)


def at_point(table: Table, at: Point) -> Table:
    """Make ``at`` the default point of reads of ``table``, and return the table."""
    table._at = at
    return table


def counted(table: Table, filter: Filter = None, **read: Unpack[Read]) -> tuple[int, pa.Schema]:
    """Return the result of ``Table.count_rows``, and a schema whose metadata has the receipt and what was left out."""
    wanted = table._wanted([table.contract.primary_key[0]], filter, **read)
    planned, rows = table._reads.count(wanted)
    return rows, planned.schema


class Table:
    """An open table, made by ``open_table``.  Threads may share it.

    Every read takes ``consistency`` or ``at``.  A ``strong`` read sees every row that was durable before the call.  An
    ``eventual`` read sees only the merged table.  If a user has restored an older version, it sees that version, and
    its receipt has no positions.

    ``at`` is a point.  A receipt, its text or its JSON gives exactly the rows of the read that returned it.
    ``At.version(412)`` or ``version:412`` gives the merged table at that version.

    Reads without ``at`` never go back: a later read is at least as new as an earlier one.  With ``max_staleness_s``,
    a read may reuse this object's newest strong plan, without a request, if the plan is younger.

    ``columns``: names, in the order wanted (default all).  ``filter``: a condition in Lance's SQL, or an expression of
    ``pyarrow.compute`` that can be translated into one.  ``limit``: at most this many rows, in any order.  The table is
    also an Arrow PyCapsule (``__arrow_c_stream__``), which calls ``scan()``.

    All reads raise ``InvalidInput`` for a wrong argument.  With ``at`` they also raise ``VersionGone``,
    ``OutsideHistoryWindow`` and ``RecordsGivenUp``.  ``ObjectMissing`` or ``ObjectCorrupt`` means that a needed object
    is lost or damaged.  ``TooManyUnmerged`` means that there are more unmerged keys than the ``unmerged_keys_max`` of
    ``open_table``.
    """

    def __init__(self, reads: Reads, vectors: UnindexedVectors | None = None) -> None:
        self._reads = reads
        self._at: Point | None = None
        """Point of reads that name none; None: the newest state."""
        self._feeds = Feeds(reads)
        self._searches = SearchCaches(vectors or UnindexedVectors())

    @property
    def uri(self) -> str:
        """The address by which the table was opened."""
        return self._reads.uri

    @property
    def contract(self) -> Contract:
        """Contract of the table: topic, keys, columns, windows."""
        return self._reads.contract

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table: those of the contract, and columns of other programs that the last read has found."""
        return self._reads.schema

    def scan(
        self, columns: Columns = None, filter: Filter = None, limit: int | None = None, **read: Unpack[Read]
    ) -> Rows:
        """Plan a read, and return it.  Its receipt is fixed, so each use returns the same rows."""
        limit = limit_of(limit)
        return Rows(self._reads, self._reads.plan(self._wanted(columns, filter, **read)), limit)

    def to_batches(
        self, columns: Columns = None, filter: Filter = None, limit: int | None = None, **read: Unpack[Read]
    ) -> pa.RecordBatchReader:
        """The rows batch by batch; the reader's schema has the receipt in its metadata."""
        limit = limit_of(limit)
        planned, batches = self._reads.begin(self._wanted(columns, filter, **read))
        return reader_of(planned.schema, batches, limit)

    def to_arrow(
        self, columns: Columns = None, filter: Filter = None, limit: int | None = None, **read: Unpack[Read]
    ) -> pa.Table:
        """The rows as one table in memory; its schema has the receipt in its metadata."""
        return self.to_batches(columns, filter, limit, **read).read_all()

    def to_pandas(
        self,
        columns: Columns = None,
        filter: Filter = None,
        limit: int | None = None,
        dtypes: Dtypes = "nullable",
        **read: Unpack[Read],
    ) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, unchanged.  ``dtypes="numpy"`` uses NumPy's types, which may lose
        digits."""
        return to_pandas(self.to_arrow(columns, filter, limit, **read), dtypes)

    def to_polars(
        self, columns: Columns = None, filter: Filter = None, limit: int | None = None, **read: Unpack[Read]
    ) -> polars.DataFrame:
        """The rows as a DataFrame of Polars."""
        return to_polars(self.to_arrow(columns, filter, limit, **read))

    def to_duckdb(
        self,
        columns: Columns = None,
        filter: Filter = None,
        limit: int | None = None,
        *,
        connection: duckdb.DuckDBPyConnection | None = None,
        **read: Unpack[Read],
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation.  Each query of it reads the same rows (``Rows.to_duckdb``)."""
        return self.scan(columns, filter, limit, **read).to_duckdb(connection)

    def head(self, n: int = 10, columns: Columns = None, filter: Filter = None, **read: Unpack[Read]) -> pa.Table:
        """Return ``n`` rows, in no order."""
        return self.to_arrow(columns, filter, n, **read)

    def get(
        self, keys: Keys | None = None, columns: Columns = None, *, region_key: object = None, **read: Unpack[Read]
    ) -> Rows:
        """Return the rows with these primary keys, in the order of the keys.  Keys without a row are left out.

        ``keys``: a list of values, or of tuples or mappings if the key has several columns.  An Arrow table with the
        primary key columns is accepted too.  Thousands of keys in one call cost little more than one.  Keys that the
        key index covers are found without a scan.

        ``region_key``: a value of the region key, or a tuple or mapping of several columns.  All ``keys`` must have
        this region key.  Without ``keys``, all rows with this region key are returned, in any order.  Unmerged rows are
        read only from its partition.
        """
        contract, wanted = self.contract, self._wanted(columns, None, **read)
        if keys is None and region_key is None:
            raise InvalidInput("get: name primary keys, or a region_key; scan() gives all rows")
        if keys is not None:
            wanted = replace(wanted, keys=keys_of(contract.rows, keys))
        if region_key is not None:
            region = region_key_of(contract, region_key)
            wanted = replace(wanted, region_key=region.encoded)
            if wanted.keys is None:
                wanted = replace(wanted, filter=region.filter)
            else:
                region.check(wanted.keys)
        return Rows(self._reads, self._reads.plan(wanted))

    def count_rows(self, filter: Filter = None, **read: Unpack[Read]) -> int:
        """Return the number of rows, or of rows that pass ``filter``.

        Without ``filter`` no row of the merged table is read, except for keys that the key index does not cover."""
        return counted(self, filter, **read)[0]

    def search(
        self,
        vector: object = None,
        text: str | TextQuery | None = None,
        *,
        filter: Filter = None,
        limit: int = 10,
        columns: Columns = None,
        **how: Unpack[Search],
    ) -> SearchRows:
        """Return the ``limit`` rows nearest to ``vector``, with ``_distance``, or the best ones for ``text``, with
        ``_score``.

        The result is complete and up to date: all unmerged rows are compared, and merged rows that they replace are
        hidden.  ``filter`` is applied before ranking.  ``exact`` compares all rows one by one.

        By vector: several vectors are several queries.  ``vector_column`` names the column if several have vectors.
        ``metric`` is ``l2``, ``cosine`` or ``dot``.  The default is the index's metric, or ``l2`` without an index.
        Binary vectors (uint8) always use ``hamming``.  An index chooses candidates among merged rows: from at least
        ``nprobes`` partitions of the index, ``refine_factor`` times as many as requested.

        By text: words, or a ``Match``, ``Phrase``, ``Boolean`` or ``Boost``, in ``text_columns``.  The default is the
        only column with a full text index, or else the only text column.  Rows are ranked by exact BM25, with the
        statistics of all rows of the state.

        By both: ``fusion`` combines the two rankings into ``_relevance_score``.

        ``rerank``: a function that gets the best rows, four times the limit, and returns a number for each.  The
        highest come first.

        Raises ``SearchUnsupported`` if the search cannot be answered completely.
        """
        asked: dict[str, Any] = dict(how)
        named = {name: asked.pop(name) for name in ASKED if name in asked}
        wanted = self._wanted(columns, filter, **asked)
        return search(self._reads, self._searches, wanted, lambda schema: sought_of(schema, vector, text, limit, named))

    def changes(
        self,
        start: Point | str | bytes,
        end: Point | str | bytes = "now",
        mode: Mode = "net",
        columns: Columns = None,
        filter: Filter = None,
    ) -> ChangeRows:
        """Plan the changes from ``start`` to ``end``.  Both are points; ``end`` may be ``now``, and ``start`` may be
        ``earliest``, the empty table.

        The result has the changes after ``start``, up to and including ``end``.  Pass its ``receipt`` as ``start`` of
        the next call.  The result has the requested columns and four more.  ``_change_type`` is ``insert``, ``delete``,
        ``update_preimage`` or ``update_postimage``.  ``_commit_version`` and ``_commit_timestamp`` are those of the
        table version that was read.  ``_sequence`` grows with each change of a key.

        ``mode``: ``net`` has at most one change for each key.  ``commits`` has the net changes from each version of the
        merged table to the next.  ``all`` has one change for each record in the log, in the order of its partition.
        Between them are the changes of commits that come from no record.  It adds ``_partition``, ``_offset``,
        ``_record_time`` and ``_source``.

        With ``columns`` and ``filter`` the result has the changes of a table with only these columns and rows.  So an
        update after which a row no longer passes the filter is a delete.

        Each use of the result reads it again, and returns the same rows or an error, like a read at a point.  Other
        errors are ``DuplicateKeys`` if another program wrote a key twice, and ``TooManyUnmerged`` if more keys than
        ``unmerged_keys_max`` may have changed.
        """
        wanted = wanted_of(columns, filter, ReadOptions())
        return ChangeRows(self._feeds, self._feeds.plan(wanted, start, end, mode))

    def follow(
        self,
        start: Point | str | bytes | None = None,
        mode: Mode = "net",
        columns: Columns = None,
        filter: Filter = None,
        **how: Unpack[Follow],
    ) -> FollowedFeeds:
        """Return the changes after ``start`` as an endless sequence of feeds, each like the result of ``changes``.

        Each feed starts where the previous one ended.  Store ``rows.receipt`` once a feed's rows are processed: it is
        the ``start`` with which to continue later.  From ``earliest``, the first feed has all rows of the table.

        ``subscription`` names a subscription whose receipt is the start.  Call ``commit()`` of the result once the
        rows of a feed are processed.  Until then the subscription keeps the data that is needed to return them again.
        After a restart, the next ``net`` feed may end later, and leaves out keys that have changed back since.  A
        feed of the mode ``all`` leaves out nothing.

        A feed has the changes of at most ``rows_max`` records.  If nothing has changed, the call blocks and looks
        again, at least every ``poll_s`` seconds.  Each feed has the columns that the table has at the feed's end.
        """
        options = follow_options(**how)
        name = options.subscription
        if (start is None) == (name is None):
            given = "neither is given" if start is None else "both are given"
            raise InvalidInput(f"follow: give a start, or the name of a subscription: {given}")
        wanted = wanted_of(columns, filter, ReadOptions())
        followed = None if name is None else self.subscriptions().get(name)
        begin = start if followed is None else followed.receipt
        feeds = follow(self._feeds, wanted, begin, mode, options.rows_max, options.poll_s)
        return FollowedFeeds(self._feeds, feeds, followed)

    def receipt(self, **read: Unpack[Read]) -> Receipt:
        """Return the receipt of the state that a read would see, without reading rows.  Pass it as ``at`` to read the
        same state several times.
        """
        return self._reads.plan(self._wanted([self.contract.primary_key[0]], None, **read)).receipt

    def snapshots(self) -> list[Snapshot]:
        """The named snapshots, which ``at="snapshot:NAME"`` reads."""
        return list(snapshots(self._reads.context.table))

    def subscriptions(self) -> Subscriptions:
        """The subscriptions: named receipts that keep what consumers of changes still need."""
        return Subscriptions(self._reads)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return all rows of this moment as an Arrow PyCapsule."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """The schema of the stream, without reading anything."""
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        return f"<lancewal.Table at {self.uri}>"

    def _wanted(self, columns: Columns, filter: Filter, **read: Unpack[Read]) -> Wanted:
        if self._at is not None and read.get("at") is None:
            read = {**read, "at": self._at}
        return wanted_of(columns, filter, read_options(**read))
