"""Watermarks of a table version V, also called W(V): for each region, the newest generation merged in V, and the merged
position after it.

A merge commit has the watermarks of *all* regions in its transaction properties.  The same content is written as an
object right after the commit, a *merge record* (``paths.merge_record``), since a clean-up removes old transactions.
After a restore, or if versions are gone, the watermarks may be in neither place.  Then a person decides which
watermarks hold.  The decision is stored as a merge record too (``decide``).

The watermarks also refer to the object with the keys in conflict (``conflicts_ref``), if there is one.  Watermarks
with such a reference have format 2, all others format 1.  So an earlier release, which would drop the reference, does
not merge after them.

Guarantee: ``Watermarks.at(V)`` returns the watermarks of the newest merge at or before V, or raises an error.  It never
returns those of an older merge.

Steps, from version V to older versions
 1. If the version has a merge record, return the record's watermarks.
 2. If its transaction has watermarks, return these.
 3. If the version is a restore, raise ``TableRestored``.  If it is an overwrite, other than the table's creation, raise
    ``TableReplaced``.
 4. Any other commit leaves the watermarks as they were, such as lancewal's own compaction or a user's commit.  So
    does a commit whose transaction Lance's Python package cannot read, since it rewrote an index.  Continue with the
    version before.
 5. If the version is gone, raise ``MergedPositionUnknown``.
 6. If no version down to 1 gave a result, nothing was ever merged.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Literal, TypeVar, assert_never

from lancewal_core.errors import (
    FormatUnknown,
    MergedPositionUnknown,
    ObjectCorrupt,
    RegionConflict,
    TableReplaced,
    TableRestored,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Making, Position, Region, TableVersion
from lancewal_core.names.words import is_word, word
from lancewal_core.process.failpoints import point
from lancewal_core.store.json_object import WHOLE_MAX, JsonFault, JsonObject, region_named
from lancewal_core.store.object_store import (
    ANSWER_OBJECTS,
    Done,
    Lost,
    ObjectStore,
    Unknown,
    no_verdict,
    put_new,
    put_once,
)
from lancewal_core.table.conflicts_ref import PROPERTY_CONFLICTS, ConflictsRef, decode_ref, parse_ref
from lancewal_core.table.protocol import (
    PinnedTable,
    StoredTable,
    TransactionGone,
    TransactionInfo,
    TransactionUnreadable,
)

FORMAT = "1"
FORMAT_WITH_CONFLICTS = "2"
PROPERTY_FORMAT = "lancewal.format"
PROPERTY_WATERMARKS = "lancewal.watermarks"
PROPERTY_MERGE = "lancewal.merge"
PROPERTY_FOLLOWUP = "lancewal.followup"
PROPERTY_LOAD = "lancewal.load"
"""Commit property with the name of the bulk load that the commit is part of."""
PROPERTY_EXPIRY = "lancewal.expiry"
"""Commit property with the random id of one try of an expiry.  An expiry hides rows whose time to live is over."""
PROPERTY_READ_VERSION = "lancewal.read_version"
"""Commit property with the version from which a merge was planned.  If Lance rebases a commit, the transaction's own
read version changes."""
TABLE_UUID = "lancewal.table_uuid"
"""Key of the contract's ``table_uuid`` in the Lance table's config."""
HELD_MAX = 160_000
"""Default size of the cache of watermarks, in units of some 400 bytes (``_Found``): 64 MiB."""


W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Watermark:
    """The newest merged generation of a region (0: none) and the position after it."""

    generation: Generation
    next: Position
    perhaps: Generation | None = None
    """If a person has accepted these watermarks as a lower bound: the newest generation of which the table may hold
    rows.  None: the table holds rows of no generation after ``generation``."""


@dataclass(frozen=True, slots=True)
class InForce:
    """Watermarks of a table version, and where they come from.

    ``version`` is the version whose merge, or whose decision by a person, has set them (0: nothing was ever merged).
    ``merge`` is the uuid of that merge; ``conflicts`` refers to the keys in conflict."""

    version: TableVersion
    merge: str | None
    regions: Mapping[Region, Watermark]
    conflicts: ConflictsRef | None = None

    def generation(self, region: Region) -> Generation:
        found = self.regions.get(region)
        return Generation(0) if found is None else found.generation

    @property
    def exact(self) -> bool:
        """Whether the table surely holds no rows of records at or after these positions."""
        return not any(mark.perhaps is not None for mark in self.regions.values())

    @property
    def positions(self) -> dict[Region, Position]:
        """Merged position of each region of which a generation was merged."""
        return {region: mark.next for region, mark in self.regions.items()}

    def position(self, region: Region) -> Position | None:
        """Return the region's merged position; None if no generation of it was merged."""
        found = self.regions.get(region)
        return None if found is None else found.next

    @property
    def keys_in_conflict(self) -> int:
        return 0 if self.conflicts is None else self.conflicts.keys

    def why_stopped(self, region: Region) -> RegionConflict | None:
        """Return the error that says why ingest takes no further records of the region; None if it takes them."""
        return None if self.conflicts is None else self.conflicts.why_stopped(region)


_KINDS = ("merge", "checkpoint", "keep", "replay", "accepted")
Decision = Literal["keep", "replay", "accepted"]
"""Kind of a person's decision about watermarks: ``keep`` or ``replay`` after a restore, ``accepted`` for watermarks
that ``lancewal repair merged-position`` has concluded."""

NOTHING_MERGED = InForce(TableVersion(0), None, {})


def encode_watermarks(regions: Mapping[Region, Watermark]) -> str:
    """Return the text of the property ``lancewal.watermarks``."""
    content = {r.name: _mark(w) for r, w in sorted(regions.items())}
    return json.dumps(content, separators=(",", ":"))


def _mark(watermark: Watermark) -> dict[str, int]:
    found = {"generation": int(watermark.generation), "next": int(watermark.next)}
    return found if watermark.perhaps is None else {**found, "perhaps": int(watermark.perhaps)}


def decode_watermarks(text: str, where: str) -> dict[Region, Watermark]:
    """Return the watermarks in a text by ``encode_watermarks``.  Raise ``ObjectCorrupt`` for another text; it names
    ``where``, the origin of the text."""
    try:
        return _regions(JsonObject.parse(text))
    except JsonFault as error:
        raise ObjectCorrupt(f"{where}: its merged positions cannot be read: {error}", object=where) from error


def _regions(content: JsonObject) -> dict[Region, Watermark]:
    return {
        region_named(name): Watermark(
            Generation(mark.whole("generation")),
            Position(mark.whole("next")),
            Generation(mark.whole("perhaps")) if "perhaps" in mark.members else None,
        )
        for name, mark in content.inners()
    }


def merge_properties(
    regions: Mapping[Region, Watermark], merge: str, conflicts: ConflictsRef | None = None
) -> dict[str, str]:
    """Return the transaction properties of a merge commit."""
    found = {
        PROPERTY_FORMAT: _format(conflicts),
        PROPERTY_WATERMARKS: encode_watermarks(regions),
        PROPERTY_MERGE: merge,
    }
    return found if conflicts is None else {**found, PROPERTY_CONFLICTS: conflicts.to_json()}


def _format(conflicts: ConflictsRef | None) -> str:
    return FORMAT if conflicts is None else FORMAT_WITH_CONFLICTS


def _check_format(found: str | None, named: bool, where: str) -> None:
    """Raise ``FormatUnknown`` for a later format ``found``, and ``ObjectCorrupt`` if it contradicts ``named``.

    ``named``: whether there is a reference to keys in conflict.  ``where``: the origin of the watermarks."""
    if found not in (FORMAT, FORMAT_WITH_CONFLICTS):
        raise FormatUnknown(
            f"{where}: this release does not read format {(found or '')[:20]!r}: upgrade lancewal", object=where
        )
    if named != (found == FORMAT_WITH_CONFLICTS):
        raise ObjectCorrupt(
            f"{where}: watermarks of format {found} {'must not have' if named else 'must have'} a reference to keys in "
            "conflict",
            object=where,
        )


def watermarks_of(info: TransactionInfo, version: int) -> InForce | None:
    """Return the watermarks in the properties of ``version``'s transaction; None if the transaction has none."""
    text = info.properties.get(PROPERTY_WATERMARKS)
    if text is None:
        return None
    where = f"transaction of table version {version}"
    named = info.properties.get(PROPERTY_CONFLICTS)
    _check_format(info.properties.get(PROPERTY_FORMAT), named is not None, where)
    merge = info.properties.get(PROPERTY_MERGE)
    if merge is not None and not is_word(merge):
        raise ObjectCorrupt(f"{where}: its property {PROPERTY_MERGE!r} is not the uuid of a merge", object=where)
    conflicts = None if named is None else decode_ref(named, where)
    return InForce(TableVersion(version), merge, decode_watermarks(text, where), conflicts)


class _Found:
    """Cache of the watermarks of table versions.  The least recently used versions are dropped first.  Threads may
    share it.

    ``held_max`` bounds the cache, in units of some 400 bytes.  A version takes one unit.  Its watermarks take one unit
    for each of their regions, once for all versions that share the same watermarks.
    """

    def __init__(self, held_max: int) -> None:
        self._held_max = held_max
        self._by_version: OrderedDict[int, InForce] = OrderedDict()
        self._uses: Counter[int] = Counter()
        """``id()`` of an ``InForce`` to the number of versions in the cache that share it."""
        self._regions = 0
        self._lock = Lock()

    def get(self, version: int) -> InForce | None:
        with self._lock:
            known = self._by_version.get(version)
            if known is not None:
                self._by_version.move_to_end(version)
            return known

    def keep(self, versions: Iterable[int], known: InForce) -> None:
        """Add ``known``, the watermarks of all ``versions``.  The version given last is dropped last."""
        with self._lock:
            for version in versions:
                if version not in self._by_version:
                    self._by_version[version] = known
                    self._uses[id(known)] += 1
                    self._regions += len(known.regions) if self._uses[id(known)] == 1 else 0
                self._by_version.move_to_end(version)
            while len(self._by_version) > 1 and len(self._by_version) + self._regions > self._held_max:
                _, old = self._by_version.popitem(last=False)
                self._uses[id(old)] -= 1
                if not self._uses[id(old)]:
                    del self._uses[id(old)]
                    self._regions -= len(old.regions)


class Watermarks:
    """Reader of the watermarks of table versions, and writer of merge records.

    Watermarks never change, so they are cached.  ``held_max``: the size of the cache (``_Found``)."""

    def __init__(self, store: ObjectStore, table: StoredTable, making: Making | None, held_max: int = HELD_MAX) -> None:
        self._store = store
        self._table = table
        self._making = making
        self._found = _Found(held_max)
        self._written: TableVersion | None = None
        self._set_by = TableVersion(0)

    @property
    def newest_set_by(self) -> TableVersion:
        """Newest version that is known to have set watermarks; 0 if none is.  Region states that are read after this
        object has learned of the version are not older than its watermarks."""
        return self._set_by

    def at(self, version: int) -> InForce:
        """Return the watermarks of a version.  Raise ``TableRestored``, ``TableReplaced`` or
        ``MergedPositionUnknown`` as the module docstring says."""
        try:
            return self._walk(version, listed=True)
        except (MergedPositionUnknown, TableRestored):
            return self._walk(version, listed=False)  # the listing may have been short of a record

    def known_at(self, version: int) -> InForce | None:
        """Return the watermarks of a version; None where ``at`` raises ``TableRestored`` or
        ``MergedPositionUnknown``."""
        try:
            return self.at(version)
        except (MergedPositionUnknown, TableRestored):
            return None

    def newest(self, check: Callable[[PinnedTable], None] = lambda pinned: None) -> tuple[PinnedTable, InForce]:
        """Return the newest table version and its watermarks.  If a clean-up removes versions during the call, try
        again with the version that is newest then.

        ``check`` is called with each version before its watermarks are read, and may raise an error."""
        return self._newest(self.at, check)

    def newest_known(self) -> tuple[PinnedTable, InForce | None]:
        """Return the newest version and its watermarks; None instead of watermarks if it is not known what the version
        contains.

        This is so after a restore about which no person has decided.  It is also so if the watermarks are a lower bound
        that a person has accepted (not ``InForce.exact``)."""

        def known(version: int) -> InForce | None:
            try:
                found = self.at(version)
            except TableRestored:
                return None
            return found if found.exact else None

        return self._newest(known)

    def _newest(
        self, at: Callable[[int], W], check: Callable[[PinnedTable], None] = lambda pinned: None
    ) -> tuple[PinnedTable, W]:
        pinned = self._table.newest()
        while True:
            check(pinned)
            try:
                return pinned, at(pinned.version)
            except MergedPositionUnknown:
                newer = self._table.newest()
                if newer.version == pinned.version:
                    raise
                pinned = newer

    def _walk(self, version: int, *, listed: bool) -> InForce:
        known = self._found.get(version)
        if known is not None:
            return known
        recorded: set[TableVersion] | None = None
        at = version
        passed: list[int] = []
        while True:
            known = self._found.get(at)
            if known is None:
                if listed and recorded is None and len(passed) >= 2:
                    recorded = self.recorded_versions(ANSWER_OBJECTS)  # a hint that saves GETs
                known = self._at_version(at, recorded)
            passed.append(at)
            if known is not None:
                break
            at -= 1
        self._found.keep(reversed(passed), known)
        self._set_by = max(self._set_by, known.version)
        return known

    def record(self, in_force: InForce, version: TableVersion, kind: Literal["merge", "checkpoint"]) -> Unknown | None:
        """Write the merge record of ``version``.  Return ``Unknown`` if the outcome of the put is unknown, else None.

        Raise ``ObjectCorrupt`` if there is a record already that has other watermarks."""
        if version == self._written:
            return None  # a quiet table: no request a round
        key = paths.merge_record(version, self._making)
        with point("merges.put", object=key):
            outcome = put_once(self._store, key, encode_merge_record(in_force, kind))
        match outcome:
            case Done():
                self._written = version
                self._found.keep([version], in_force)  # it would be read back from there
                self._set_by = max(self._set_by, in_force.version)
            case Unknown():
                return outcome
            case Lost(found=found):
                other = decode_merge_record(found, key)
                said = (other.version, other.regions, other.conflicts)
                if said != (in_force.version, in_force.regions, in_force.conflicts):
                    raise ObjectCorrupt(
                        f"{key} has other merged positions than the table's history. It has "
                        f"{encode_watermarks(other.regions)}, the history has {encode_watermarks(in_force.regions)}",
                        object=key,
                    )
                self._written = version
            case _:
                assert_never(outcome)
        return None

    def recorded(self, in_force: InForce, version: TableVersion, kind: Literal["merge", "checkpoint"]) -> None:
        """Do as ``record`` does, but raise ``StoreUnavailable`` if the outcome of the put is unknown."""
        unknown = self.record(in_force, version, kind)
        if unknown is not None:
            raise no_verdict(paths.merge_record(version, self._making), unknown.cause, "the next round writes it")

    def decide(self, in_force: InForce, kind: Decision) -> InForce:
        """Store a person's decision as the merge record of ``in_force.version``.  Return the watermarks of that
        record: those of this decision, or of an earlier one.

        Raise ``StoreUnavailable`` if the outcome of the put is unknown.  The caller may then repeat the call with the
        same decision.
        """
        key = paths.merge_record(in_force.version, self._making)
        with point("merges.put", object=key):
            outcome = put_new(self._store, key, encode_merge_record(in_force, kind), "run the command again")
        return in_force if isinstance(outcome, Done) else decode_merge_record(outcome.found, key)

    def recorded_versions(self, limit: int | None = None) -> set[TableVersion]:
        """Return the versions that have a merge record.  ``limit``: only about this many, the newest."""
        infos = self._store.list(paths.merges_prefix(self._making), limit=limit)
        return {v for info in infos if (v := paths.parse_merge_record(info.key)) is not None}

    def _at_version(self, version: int, recorded: set[TableVersion] | None) -> InForce | None:
        if version < 1:
            return NOTHING_MERGED
        if recorded is None or version in recorded:
            key = paths.merge_record(TableVersion(version), self._making)
            data = self._store.get(key)
            if data is not None:
                return decode_merge_record(data, key)
        found = self._table.transaction(version)
        match found:
            case TransactionInfo():
                in_force = watermarks_of(found, version)
                if in_force is not None:
                    return in_force
                if found.operation == "Restore":
                    raise TableRestored(
                        f"table version {version} is a restore of an older one. What is merged is not known any more. "
                        "Merges and reads stop until a person says what becomes of the rows that were merged since: "
                        "`lancewal repair restored --rows-since drop|replay`",
                        version=version,
                    )
                if found.operation == "Overwrite" and version > 1:
                    raise TableReplaced(
                        f"table version {version} overwrote the table, so its rows are those of another program. "
                        "lancewal stops. docs/reference/conflicts.md says how to continue",
                        version=version,
                    )
                return None
            case TransactionUnreadable():
                return None
            case TransactionGone():
                raise MergedPositionUnknown(
                    f"table version {version} is gone and no record under {paths.merges_prefix(self._making)} is newer. "
                    "What is merged cannot be proven. `lancewal repair merged-position` shows what can still be concluded, "
                    "and lets a person accept it",
                    version=version,
                )
            case _:
                assert_never(found)


def encode_merge_record(in_force: InForce, kind: Literal["merge", "checkpoint"] | Decision) -> bytes:
    """Return a merge record as an object's bytes."""
    content = {
        "format": _format(in_force.conflicts),
        "kind": kind,
        "set_by": in_force.version,
        "merge": in_force.merge,
        "watermarks": json.loads(encode_watermarks(in_force.regions)),
        **({} if in_force.conflicts is None else {"conflicts": in_force.conflicts.members()}),
    }
    return json.dumps(content, indent=1).encode()


def kind_of(data: bytes, key: str) -> str:
    """Return the kind of the merge record in ``data``: ``merge``, ``checkpoint``, or a ``Decision``.  ``key`` is its
    object's key."""
    try:
        return _kind(JsonObject.parse(data))
    except JsonFault as error:
        raise ObjectCorrupt(f"{key} is not a merge record: {error}", object=key) from error


def _kind(content: JsonObject) -> str:
    kind = content.text("kind")
    if kind not in _KINDS:
        raise JsonFault(f"its 'kind' is {kind[:20]!r}; expected one of {', '.join(_KINDS)}")
    return kind


def decode_merge_finished(data: bytes, key: str) -> str:
    """Return the uuid in the object ``key``, which says that a merge is finished.  Raise ``ObjectCorrupt`` if it has
    none."""
    try:
        return word(data.decode("ascii"), "uuid")
    except ValueError as error:
        raise ObjectCorrupt(f"{key} does not hold the uuid of a merge", object=key) from error


def decode_merge_record(data: bytes, key: str) -> InForce:
    """Return the watermarks of the merge record in ``data``, the object ``key``.  Raise ``ObjectCorrupt`` or
    ``FormatUnknown``, which name the object."""
    version = paths.parse_merge_record(key)
    try:
        content = JsonObject.parse(data)
        named = "conflicts" in content.members
        _check_format(content.text("format"), named, key)
        # What is in force at a version was set there or below it.
        set_by = content.whole("set_by", high=WHOLE_MAX if version is None else version)
        merge = None if content.raw("merge") is None else content.word("merge")
        _kind(content)
        conflicts = parse_ref(content.inner("conflicts")) if named else None
        return InForce(TableVersion(set_by), merge, _regions(content.inner("watermarks")), conflicts)
    except JsonFault as error:
        raise ObjectCorrupt(f"{key} is not a merge record: {error}", object=key) from error
