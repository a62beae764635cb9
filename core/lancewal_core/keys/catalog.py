"""The catalog of the key index: which runs exist, and which data files each run covers.

The catalog is one versioned object, with a new version for each change.  It is only a hint.  A file that no run
covers is scanned.  If a part of a run is missing or damaged, the run's files count as uncovered.  So a catalog that
is out of date, lost or unreadable costs time and nothing else.

Guarantee: any changed or missing byte is found, since the text ends with a crc32c of everything before it.  Only
catalogs of earlier releases have no checksum.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Annotated

import google_crc32c
from pydantic import FailFast, Field

from lancewal_core.errors import Corrupt, FormatUnknown, ObjectCorrupt, StoreInconsistent
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.names import paths
from lancewal_core.names.ids import Making, Position
from lancewal_core.process.clock import Clock
from lancewal_core.store.json_model import StoredModel, Version1, Word, decode_model
from lancewal_core.store.json_object import JsonFault, region_named
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import Declined, Family, Version, newest_version, swap


def catalog_family(making: Making | None) -> Family:
    """Return the object keys of the catalog's versions, as a family."""
    return Family.made(making, paths.key_catalog_prefix, paths.key_catalog_version, paths.parse_key_catalog_version)


RECENT_S = 10.0
KNOWN_FOR_S = 3600.0
"""Seconds since the last read after which the newest version is found by a listing.  Versions after the known one may
have been deleted by then."""

_CHECKSUM = re.compile(rb',"crc32c":([0-9]{1,10})\}\Z')
_CHECKSUM_SIZE = 21
"""Number of bytes at the end of the text among which the checksum is looked for."""

_Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Number = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class KeyPart(StoredModel):
    """Reference to a part: an object with sorted entries.  ``first`` and ``last`` are the numbers of its first and last
    entry."""

    object: str
    entries: _Count
    first: _Number
    last: _Number
    size: _Count
    crc32c: _Count


class CoveredFile(StoredModel):
    """A data file of which a run has all physical rows."""

    name: Word
    rows: _Count


class RunRegion(StoredModel):
    """A region through which rows of a run came: its name, and the position up to which it was merged at that time."""

    name: str
    position: _Count


class KeyRun(StoredModel):
    """A key run (``run``).  An entry's ``file`` is an index into ``files``, its ``region`` an index into ``regions``.
    The parts are sorted by the numbers of their keys."""

    name: Word
    files: Annotated[tuple[CoveredFile, ...], FailFast()]
    parts: Annotated[tuple[KeyPart, ...], FailFast()]
    regions: Annotated[tuple[RunRegion, ...], FailFast(), Field(exclude_if=lambda regions: not regions)] = ()

    @cached_property
    def merged_from(self) -> tuple[MergedFrom, ...]:
        """The run's regions, in the order of ``regions``."""
        return tuple(MergedFrom(region_named(region.name), Position(region.position)) for region in self.regions)

    @property
    def entries(self) -> int:
        return sum(part.entries for part in self.parts)


class KeyCatalog(StoredModel):
    """One version of the catalog.  If two runs cover one file, the first run counts for the file."""

    format: Version1 = 1
    runs: Annotated[tuple[KeyRun, ...], FailFast()]
    write_id: Word
    """Id that differs in every version.  By it a process whose reply was lost sees whether it wrote the version."""


EMPTY = KeyCatalog(runs=(), write_id="none")


def encode_catalog(catalog: KeyCatalog) -> bytes:
    content = catalog.model_dump_json().encode()[:-1]
    return content + b',"crc32c":%d}' % google_crc32c.value(content)


def decode_catalog(data: bytes, where: str) -> KeyCatalog:
    """Decode a catalog.  Raise ``FormatUnknown`` for a later format, ``ObjectCorrupt`` for anything else that is not a
    catalog."""
    end = data[-_CHECKSUM_SIZE:]
    checksum = _CHECKSUM.search(end)
    if checksum is not None:  # a checksum damaged beyond this pattern is a member that no catalog has
        data = data[: checksum.start() - len(end)]
        if google_crc32c.value(data) != int(checksum[1]):
            raise _corrupt(where, "its checksum does not match")
        data += b"}"
    catalog = decode_model(KeyCatalog, data, where, "key catalog")
    for run in catalog.runs:
        try:
            _ = run.merged_from
        except JsonFault as error:
            raise _corrupt(where, f"it names something that is not a region: {error}") from error
        for part in run.parts:
            if paths.parse_key_part(part.object) is None:
                raise _corrupt(where, "it names an object that cannot belong to the key index")
    return catalog


def _corrupt(where: str, problem: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"{where}, a key catalog, is corrupt: {problem}", object=where)


Problem = Corrupt | StoreInconsistent | None


class KeyCatalogs:
    """Reader and writer of a table's key catalog.  ``problem`` says why the newest catalog could not be read; None:
    it could.

    Threads may share it.  The result of the request that ends last is kept, even if another thread saw a newer
    version.
    """

    def __init__(self, store: ObjectStore, clock: Clock, making: Making | None) -> None:
        self.problem: Problem = None
        self._store = store
        self._family = catalog_family(making)
        self._clock = clock
        self._known: tuple[Version, KeyCatalog, float, Problem] | None = None

    def read(self) -> KeyCatalog:
        """Return the newest catalog; an empty one if there is none, or if it cannot be read."""
        return self._read()[0]

    def read_sound(self) -> KeyCatalog | None:
        """Return the newest catalog; None if it cannot be read.  Requests of other threads do not change the result."""
        catalog, problem = self._read()
        return catalog if problem is None else None

    def _read(self) -> tuple[KeyCatalog, Problem]:
        try:
            return self._decoded(newest_version(self._store, self._family, self._hint()))
        except (StoreInconsistent, ObjectCorrupt) as error:
            return self._lost(error), error

    def last(self) -> KeyCatalog:
        """Return the catalog that this object has read last, without a request; empty if it has read none."""
        known = self._known
        return EMPTY if known is None else known[1]

    def recent(self) -> KeyCatalog:
        """Return the catalog if it was read within the last ``RECENT_S``; otherwise read the newest one.

        An older catalog only costs time: files that it does not cover are scanned.
        """
        known = self._known
        if known is None or self.problem is not None or self._clock.monotonic() - known[2] > RECENT_S:
            return self.read()
        return known[1]

    def swap(
        self, decide: Callable[[KeyCatalog], tuple[KeyRun, ...] | None], new_id: Callable[[], str]
    ) -> KeyCatalog | None:
        """Write a new version of the catalog with the runs that ``decide`` returns for the newest one, and return it.

        Return None if ``decide`` returns None, if the versions cannot be read, or if a newer release wrote the newest
        version.  ``new_id`` makes the ``write_id``.
        """

        def decide_version(version: Version | None) -> KeyCatalog | None:
            before, problem = self._decoded(version)
            if isinstance(problem, FormatUnknown):
                return None  # a newer release keeps it up
            runs = decide(before)
            return None if runs is None else KeyCatalog(runs=runs, write_id=new_id())

        try:
            outcome = swap(self._store, self._family, self._clock, decide_version, encode_catalog, self._hint())
        except (StoreInconsistent, ObjectCorrupt) as error:
            self._lost(error)
            return None
        if isinstance(outcome, Declined):
            return None
        self._known = (outcome.version, outcome.value, self._clock.monotonic(), None)
        self.problem = None
        return outcome.value

    def _lost(self, error: StoreInconsistent | ObjectCorrupt) -> KeyCatalog:
        """Forget the known catalog, so that the next read starts from a listing.  Return an empty catalog.

        The reason is that versions were deleted, that the listing hides them, or that an object is too large to be a
        catalog.
        """
        self._known = None
        self.problem = error
        return EMPTY

    def _hint(self) -> Version | None:
        known = self._known
        if known is None or self._clock.monotonic() - known[2] > KNOWN_FOR_S:
            return None
        return known[0]

    def _decoded(self, version: Version | None) -> tuple[KeyCatalog, Problem]:
        if version is None:
            return EMPTY, None
        known = self._known
        if known is not None and known[0] == version:
            _, catalog, _, problem = known
        else:
            catalog, problem = EMPTY, None
            try:
                catalog = decode_catalog(version.data, self._family.key(version.version))
            except Corrupt as error:
                problem = error
        self.problem = problem
        self._known = (version, catalog, self._clock.monotonic(), problem)
        return catalog, problem
