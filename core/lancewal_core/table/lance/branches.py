"""Branches of a Lance data set.  Lance makes and drops branches.  This module also drops what an interrupted call of
Lance has left.

Lance stores each name of a branch or tag as an object.  If one of these objects is neither, Lance's listings and
clean-ups fail as a whole.
 1. ``all`` then reads the objects one by one, and leaves out those that it cannot read.
 2. ``fault`` names such an object.  While there is one, no version and no branch is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, unquote

from lancewal_core.errors import (
    LancewalError,
    LinkRefused,
    ObjectCorrupt,
    StoreRefused,
    StoreUnavailable,
    VersionGone,
    some_of,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.library_errors import first_line
from lancewal_core.store.json_object import JsonFault, JsonObject
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.refusal import refusal
from lancewal_core.table.lance.errors import read_error, reading, says_gone, writing
from lancewal_core.table.protocol import Branch

_CLONE_TAKEN = "Clone operation should not enter"
"""Part of Lance's message when the first version of a branch exists already."""
_LOOKS = 10
_REF = ".json"
_NAMED_MAX = 3
_KEY_MAX = 200
"""Longest key that ``find`` asks for.  A local folder refuses longer names; ``find`` then lists all branches."""
_PARTS = (paths.VERSIONS, paths.TRANSACTIONS, paths.DELETIONS, paths.INDICES, paths.DATA)
"""Folders that are emptied when a branch is dropped.  The branch's whole folder is not, since branch ``a/b`` lies in
the folder of branch ``a``."""


@dataclass(slots=True, eq=False)
class Branches:
    """Branches of the data set at ``uri``.  ``StoredTable`` says what its methods of similar names promise.

    ``newest`` and ``at`` open the newest and a given version of the data set.  ``objects`` opens its folder."""

    uri: str
    newest: Callable[[], Any]
    at: Callable[[int], Any]
    objects: Callable[[], ObjectStore]

    def all(self) -> Sequence[Branch]:
        if not self.objects().list(paths.BRANCH_REFS, limit=1):
            return ()
        opened = self.newest()
        try:
            with reading(f"listing the branches of {self.uri}", names_nothing=True):
                listed = cast("Mapping[str, Any]", opened.branches.list())
        except (LancewalError, RuntimeError, ValueError):
            # An object that is no branch is there, or one was dropped when Lance had its name and had not read it yet.
            return self.beginning("")
        return [
            Branch(name, TableVersion(int(about["parent_version"])), dict(about["metadata"]))
            for name, about in sorted(listed.items())
        ]

    def fault(self) -> ObjectCorrupt | None:
        try:
            if not self.objects().list(paths.REFS, limit=1):
                return None
        except LinkRefused as error:
            return self._fault([str(error.where["object"])], error)
        opened = self.newest()
        reason: Exception | None = None
        for _ in range(_LOOKS):
            try:
                with reading(f"listing the branches and tags of {self.uri}", names_nothing=True):
                    opened.branches.list()
                    opened.tags.list()
                return None
            except (LancewalError, RuntimeError, ValueError) as error:
                odd = self._odd()
                if odd or not isinstance(error, (VersionGone, StoreUnavailable)):
                    return self._fault(odd, error)
                if isinstance(error, StoreUnavailable):
                    raise
                reason = error  # one was dropped when Lance had its name and had not read it yet
        raise StoreUnavailable(
            f"branches or tags of {self.uri} were deleted while they were listed, {_LOOKS} times in a row. Try again "
            f"when no other program deletes them: {reason}"
        ) from reason

    def _fault(self, odd: Sequence[str], error: Exception) -> ObjectCorrupt:
        named = some_of(odd, _NAMED_MAX) if odd else f"an object below {paths.REFS}"
        return ObjectCorrupt(
            f"{named} in {self.uri} cannot be read as the name of a branch or tag: {first_line(error)}. No version and "
            "no branch is removed, since nobody knows what is still needed. Restore the object, or remove it if it "
            "names no branch and no tag"
        )

    def beginning(self, text: str) -> Sequence[Branch]:
        """Return the branches whose names begin with ``text``, sorted by name.  This costs a listing, and a request for
        each."""
        begins = f"{paths.BRANCH_REFS}{quote(text, safe='', errors='replace')}"
        read = [self._read(key) for key in self._refs(paths.BRANCH_REFS) if key.startswith(begins)]
        return sorted((branch for branch in read if branch is not None), key=lambda branch: branch.name)

    def _read(self, key: str) -> Branch | None:
        """Return the branch in the object ``key``.  Return None if there is no object, or if it cannot be read; then
        ``fault`` names it."""
        try:
            data = self.objects().get(key)
            return None if data is None else _branch(key, data)
        except (ObjectCorrupt, JsonFault):
            return None

    def _odd(self) -> Sequence[str]:
        """Return the keys of objects that Lance takes for branches or tags but cannot read.  Only keys that still
        exist at the end of the call count."""
        odd = set()
        for prefix, parse in ((paths.BRANCH_REFS, _branch), (paths.TAG_REFS, _check_tag)):
            for key in self._refs(prefix):
                try:
                    data = self.objects().get(key)
                    if data is None:
                        odd.add(key)
                    else:
                        parse(key, data)
                except (ObjectCorrupt, JsonFault):
                    odd.add(key)
        return sorted(odd.intersection(info.key for info in self.objects().list(paths.REFS)))

    def _refs(self, prefix: str) -> Sequence[str]:
        """Return the keys below ``prefix`` that Lance takes for branches or tags: those that end with ``.json``.

        Keys inside a folder whose name ends with ``.json`` are returned too, since Lance fails on such a folder."""
        keys = (info.key for info in self.objects().list(prefix))
        return [key for key in keys if key.removeprefix(prefix).split("/")[0].endswith(_REF)]

    def create(self, name: str, version: TableVersion) -> bool:
        if self.find(name) is not None:
            return False
        opened = self.at(version)
        try:
            with writing(f"making branch {name} at version {version}"):
                opened.create_branch(name, int(version))
        except (OSError, RuntimeError, ValueError) as error:
            text = str(error)
            refused = refusal(text) is StoreRefused
            if not refused and (paths.branch_folder(name) in text or _CLONE_TAKEN in text):
                return False  # another process was faster, or one was cut short
            if says_gone(error):
                raise VersionGone(
                    f"version {version} of {self.uri} is gone: a clean-up removed it", version=version
                ) from error
            raise read_error(error, f"making branch {name} at version {version}") from error
        return True

    def note(self, name: str, notes: Mapping[str, str]) -> None:
        opened = self.newest()
        with reading(f"writing the metadata of branch {name}", names_nothing=True):
            opened.branches.replace_metadata(name, dict(notes))

    def drop(self, name: str) -> bool:
        fault = self.fault()
        if fault is not None:
            raise fault
        there = self.find(name) is not None
        if there:
            opened = self.newest()
            try:
                with reading(f"dropping branch {name}"):
                    opened.branches.delete(name)
            except ValueError:
                if self.find(name) is not None:
                    raise
        # Lance deletes nothing of one that was cut short before it had a name.
        folder = paths.branch_folder(name)
        left = [info.key for part in _PARTS for info in self.objects().list(f"{folder}/{part}")]
        if left:
            self.objects().delete(left)
        return there or bool(left)

    def find(self, name: str) -> Branch | None:
        """Return a branch by its name; None if there is none, or if it cannot be read.  This costs one request,
        unless the name is very long.  Lance's own lookup lists all branches and reads each."""
        key = f"{paths.BRANCH_REFS}{quote(name, safe='', errors='replace')}{_REF}"
        if len(key) > _KEY_MAX:
            return next((branch for branch in self.all() if branch.name == name), None)
        found = self._read(key)
        return found if found is not None and found.name == name else None


def _branch(key: str, data: bytes) -> Branch:
    """Return the branch in an object.  Raise ``JsonFault`` if the object is not a branch that Lance can read."""
    name, found = _parsed(key, paths.BRANCH_REFS, data)
    version, _ = found.whole("parentVersion"), found.whole("createAt")
    return Branch(name, TableVersion(version), _notes(found))


def _check_tag(key: str, data: bytes) -> None:
    """Raise ``JsonFault`` if the object is not a tag."""
    _, found = _parsed(key, paths.TAG_REFS, data)
    found.whole("version")
    _notes(found)


def _parsed(key: str, prefix: str, data: bytes) -> tuple[str, JsonObject]:
    name = key.removeprefix(prefix).removesuffix(_REF)
    if "/" in name:
        raise JsonFault("it is neither a branch nor a tag: it lies in a folder whose name ends in .json")
    found = JsonObject.parse(data)
    found.whole("manifestSize")
    return unquote(name), found


def _notes(found: JsonObject) -> Mapping[str, str]:
    notes = found.inner("metadata") if "metadata" in found.members else JsonObject({})
    return {name: notes.text(name) for name in notes.members}
