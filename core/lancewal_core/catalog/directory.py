"""A catalog in a folder of the object store, its root.

All entries of tables are one object, a new version for each change (``store.versioned``).  A kept cut is one object
under its name.  A moving cut is a family of versions under its name; one that was dropped has a newest version
without a cut.  All lie below ``_lancewal/catalog/`` in the root.

Guarantees, besides those of ``catalog``
 1. If a version is known, the search for a newer one costs one GET.  Reading a kept cut costs one GET, and reading a
    moving cut of which a version is known two.
 2. Old versions are deleted with every fiftieth change.  The newest hundred stay, and those of the last hour by the
    store's clock.  A failed deletion does not fail the change, so a role that may not delete keeps all versions.  A
    process that was paused for long may find no successor of the version that it knows, though there are newer ones.
    So a version is known for ``_KNOWN_MS`` only.  A swap that took longer counts if a listing shows it as the newest.
 3. A kept cut is compared, and then deleted.  Two people who drop a cut at once, while a third makes it again, may
    lose the third's record.  Its snapshots stay, and ``lancewal catalog rebuild`` brings it back.
 4. A name is taken by a kept cut or by a moving one.  A process that makes one then looks for the other.  If
    it finds the other, it deletes its own.  So if both are made at once, both may fail.  A process that dies before it
    looks leaves both, and ``cut`` shows the kept one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, TypeVar

from pydantic import Field

from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.entry import CatalogRecord, TableEntry
from lancewal_core.errors import InvalidInput, LancewalError, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.address import place_of
from lancewal_core.store.json_model import Version1, Word
from lancewal_core.store.object_store import Done, ObjectStore
from lancewal_core.store.versioned import (
    FIRST_VERSION,
    Declined,
    Family,
    Swapped,
    Version,
    newest_version,
    put_until_told,
    swap,
)

TABLES_MAX = 100_000
"""Largest number of tables of a catalog.  Their entries lie in one object."""
_KEPT_VERSIONS = 100
_KEPT_MS = 3600 * 1000
"""Time that a version stays after a newer one, in milliseconds: longer than any read takes."""
_DELETED_EVERY = 50
_KNOWN_MS = 600 * 1000
"""Time in milliseconds for which a version counts as known: well below ``_KEPT_MS``."""
_NONE = "none"
V = TypeVar("V", bound="_Stored")


class _Stored(CatalogRecord):
    format: Version1 = 1
    write_id: Word
    """Differs in every version.  By it a writer tells a lost reply from a lost race."""


class _Tables(_Stored):
    """One version of the list of tables."""

    what = "list of tables"
    tables: Annotated[dict[str, TableEntry], Field(max_length=TABLES_MAX)] = Field(default_factory=dict)


class _Moving(_Stored):
    """One version of a moving cut.  ``cut`` is None if the cut was dropped."""

    what = "cut"
    cut: Cut | None = None


_NO_TABLES = _Tables(write_id=_NONE)


class DirectoryCatalog:
    """A catalog in a folder of an object store.  ``root`` is the folder's address, and ``where`` the canonical form of
    it.
    """

    keeps_cuts = True

    def __init__(self, store: ObjectStore, root: str, tasks: Tasks, clock: Clock, new_id: Callable[[], str]) -> None:
        self._store, self._tasks, self._clock, self._new_id = store, tasks, clock, new_id
        self.where, self.root = place_of(root), root
        self._tables = Family(paths.CATALOG_TABLES, paths.catalog_tables_version, paths.parse_catalog_tables_version)
        self._known: dict[str, tuple[int, Version]] = {}
        """For each family, by its prefix: the newest version that was seen, and the time (milliseconds since 1970)
        before it was asked for."""
        self._decoded = (0, _NO_TABLES)
        """Number and content of the version that was decoded last: decoding 10,000 entries takes 0.1 s."""

    # -- tables ---------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, TableEntry]:
        return dict(sorted(self._list(self._newest(self._tables)).tables.items()))

    def table(self, name: str) -> TableEntry | None:
        return self._list(self._newest(self._tables)).tables.get(name)

    def swap_table(self, name: str, instead_of: TableEntry | None, new: TableEntry | None) -> bool:
        if new is not None and new.name != name:
            raise AssertionError(f"the entry of table {new.name!r} was to be stored under another name: {name!r}")

        def decide(version: Version | None) -> _Tables | None:
            tables = self._list(version).tables
            if not _same(tables.get(name), instead_of):
                return None
            after = {other: entry for other, entry in tables.items() if other != name}
            if new is not None:
                after[name] = new
            if len(after) > TABLES_MAX:
                raise InvalidInput(
                    f"the catalog {self.where} has {TABLES_MAX} tables, the most that it can have: first forget one "
                    "(`lancewal catalog forget NAME`), or add the table to another catalog"
                )
            return _Tables(write_id=self._new_id(), tables=after)

        swapped = self._swap(self._tables, decide)
        if isinstance(swapped, Declined):
            return _same(self._list(swapped.found).tables.get(name), new)
        self._decoded = swapped.version.version, swapped.value
        self._delete_old(self._tables, swapped.version.version)
        return True

    def _list(self, version: Version | None) -> _Tables:
        if version is None:
            return _NO_TABLES
        number, tables = self._decoded  # read once, since threads share it
        if number == version.version:
            return tables
        where = self._tables.key(version.version)
        found = _Tables.decode(version.data, where)
        for name, entry in found.tables.items():
            if entry.name != name:
                raise ObjectCorrupt(
                    f"{where} is corrupt: the entry of table {name!r} has the name {entry.name!r}", object=where
                )
        self._decoded = version.version, found
        return found

    # -- cuts -----------------------------------------------------------------------------------------------------

    def cuts(self) -> Mapping[str, Cut]:
        kept = [paths.parse_kept_cut(info.key) for info in self._store.list(paths.KEPT_CUTS)]
        moving = [paths.parse_moving_cut_version(info.key) for info in self._store.list(paths.MOVING_CUTS)]
        names = {name for name in kept if name is not None} | {found[0] for found in moving if found is not None}
        cuts = self._tasks.map(self.cut, sorted(names))
        return {cut.name: cut for cut in cuts if cut is not None}

    def cut(self, name: str) -> Cut | None:
        kept = self._kept(name)
        return self._newest_moving(name) if kept is None else kept

    def swap_cut(self, name: str, instead_of: Cut | None, new: Cut | None) -> bool:
        if {name} != {cut.name for cut in (instead_of, new) if cut is not None}:
            raise AssertionError(f"another cut was to be stored under the name {name!r}")
        moves = {cut.moving for cut in (instead_of, new) if cut is not None}
        if len(moves) != 1:
            raise AssertionError(f"cut {name!r} was to change between kept and moving")
        return self._swap_moving(name, instead_of, new) if moves == {True} else self._swap_kept(name, instead_of, new)

    def _swap_kept(self, name: str, instead_of: Cut | None, new: Cut | None) -> bool:
        if instead_of is not None and new is not None:
            raise AssertionError(f"the kept cut {name!r} was to be changed")
        found, key = self.cut(name), paths.kept_cut(name)
        if not _same(found, new):
            if not _same(found, instead_of):
                return False
            if new is None:
                self._store.delete([key])
                return True
            data = new.encode()
            if not isinstance(put_until_told(self._store, key, self._clock, lambda: data), Done):
                return False
        if new is not None and self._newest_moving(name) is not None:  # guarantee 4
            self._store.delete([key])
            return False
        return True

    def _kept(self, name: str) -> Cut | None:
        key = paths.kept_cut(name)
        data = self._store.get(key)
        return None if data is None else _checked(Cut.decode(data, key), name, key)

    def _swap_moving(self, name: str, instead_of: Cut | None, new: Cut | None) -> bool:
        if instead_of is None and self._kept(name) is not None:
            return False

        def decide(version: Version | None) -> _Moving | None:
            if not _same(self._moving(name, version), instead_of):
                return None
            return _Moving(write_id=self._new_id(), cut=new)

        family = self._moving_family(name)
        swapped = self._swap(family, decide)
        if isinstance(swapped, Declined):
            return _same(self._moving(name, swapped.found), new)
        self._delete_old(family, swapped.version.version)
        if instead_of is None and new is not None and self._kept(name) is not None:  # guarantee 4
            self._swap_moving(name, new, None)
            return False
        return True

    def _newest_moving(self, name: str) -> Cut | None:
        return self._moving(name, self._newest(self._moving_family(name)))

    def _moving(self, name: str, version: Version | None) -> Cut | None:
        if version is None:
            return None
        key = paths.moving_cut_version(name, version.version)
        cut = _Moving.decode(version.data, key).cut
        return None if cut is None else _checked(cut, name, key)

    def _moving_family(self, name: str) -> Family:
        prefix = paths.moving_cut_prefix(name)
        return Family.of(
            name, prefix, lambda version: paths.moving_cut_version(name, version), paths.parse_moving_cut_version
        )

    # -- versions -------------------------------------------------------------------------------------------------

    def _newest(self, family: Family, *, known: bool = True) -> Version | None:
        began = self._clock.now_ms()
        found = newest_version(self._store, family, self._known_to(family, began) if known else None, self._tasks)
        self._know(family, found, began)
        return found

    def _swap(self, family: Family, decide: Callable[[Version | None], V | None]) -> Swapped[V] | Declined:
        began = self._clock.now_ms()
        swapped = swap(self._store, family, self._clock, decide, _Stored.encode, self._known_to(family, began))
        version = swapped.found if isinstance(swapped, Declined) else swapped.version
        if isinstance(swapped, Swapped) and abs(self._clock.now_ms() - began) > _KNOWN_MS:
            newest = self._newest(family, known=False)
            return swapped if newest == version else Declined(newest)
        self._know(family, version, began)
        return swapped

    def _know(self, family: Family, version: Version | None, at_ms: int) -> None:
        if version is not None:
            self._known[family.prefix] = at_ms, version

    def _known_to(self, family: Family, now_ms: int) -> Version | None:
        at_ms, version = self._known.get(family.prefix, (0, None))
        return version if abs(now_ms - at_ms) <= _KNOWN_MS else None

    def _delete_old(self, family: Family, newest: int) -> None:
        """With every fiftieth version, delete old versions in ascending order.  Version 1, the newest hundred and
        those of the last hour stay (guarantee 2)."""
        if newest % _DELETED_EVERY:
            return
        with suppress(LancewalError):  # the change is made; the next time will do
            old = []
            listed = [
                (version, info) for info in self._store.list(family.prefix) if (version := family.parse(info.key))
            ]
            # The newest was put right now.  Its time is that of the store, and this process's clock may be wrong.
            until_ms = max((info.modified_ms for _, info in listed), default=0) - _KEPT_MS
            for version, info in sorted(listed, key=lambda of: of[0]):  # a folder lists in any order
                if version == FIRST_VERSION:
                    continue
                if version > newest - _KEPT_VERSIONS or info.modified_ms > until_ms:
                    break
                old.append(info.key)
            self._store.delete(old)


def _same(found: TableEntry | Cut | None, wanted: TableEntry | Cut | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return found.write_id == wanted.write_id


def _checked(cut: Cut, name: str, key: str) -> Cut:
    if cut.name != name:
        raise ObjectCorrupt(f"{key} is corrupt: the cut has the name {cut.name[:100]!r}", object=key)
    return cut
