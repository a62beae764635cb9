"""Branches of a Lance data set.  Lance makes and drops them; what it leaves of one that was cut short is dropped here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from lancewal_core import paths
from lancewal_core.errors import StoreUnavailable, VersionGone
from lancewal_core.ids import TableVersion
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.lance.errors import NOT_FOUND, read_error, reading, writing
from lancewal_core.table.protocol import Branch

_CLONE_TAKEN = "Clone operation should not enter"
"""What Lance says where the first version of a branch is there already."""
_LOOKS = 10
_PARTS = (paths.VERSIONS, paths.TRANSACTIONS, paths.DELETIONS, paths.INDICES, paths.DATA)
"""Not its whole folder: in that of ``a`` lies a branch ``a/b``."""


class Branches:
    """Of the data set at ``uri``; ``newest`` and ``at`` open versions of it, ``objects`` its folder.  For what each call
    promises see ``Table``."""

    def __init__(
        self, uri: str, newest: Callable[[], Any], at: Callable[[int], Any], objects: Callable[[], ObjectStore]
    ) -> None:
        self._uri = uri
        self._newest = newest
        self._at = at
        self._objects = objects

    def all(self) -> Sequence[Branch]:
        if not self._objects().list(paths.BRANCH_REFS, limit=1):
            return ()
        return [
            Branch(name, TableVersion(int(about["parent_version"])), dict(about["metadata"]))
            for name, about in sorted(self._listed().items())
        ]

    def _listed(self) -> Mapping[str, Any]:
        opened = self._newest()
        reason: Exception | None = None
        for _ in range(_LOOKS):
            try:
                with reading(f"listing the branches of {self._uri}", names_nothing=True):
                    return cast("Mapping[str, Any]", opened.branches.list())
            except VersionGone as error:  # one was dropped when Lance had its name and had not read it yet
                reason = error
        raise StoreUnavailable(f"branches of {self._uri} go while they are listed: {reason}") from reason

    def create(self, name: str, version: TableVersion) -> bool:
        if self._has(name):
            return False
        opened = self._at(version)
        try:
            with writing(f"making branch {name} at version {version}"):
                opened.create_branch(name, int(version))
        except (OSError, RuntimeError, ValueError) as error:
            text = str(error)
            if paths.branch_folder(name) in text or _CLONE_TAKEN in text:
                return False  # another process was faster, or one was cut short
            if NOT_FOUND in text.lower():
                raise VersionGone(
                    f"version {version} of {self._uri} is gone: a clean-up removed it", version=version
                ) from error
            raise read_error(error, f"making branch {name} at version {version}") from error
        return True

    def note(self, name: str, notes: Mapping[str, str]) -> None:
        opened = self._newest()
        with reading(f"writing the metadata of branch {name}", names_nothing=True):
            opened.branches.replace_metadata(name, dict(notes))

    def drop(self, name: str) -> bool:
        there = self._has(name)
        if there:
            opened = self._newest()
            try:
                with reading(f"dropping branch {name}"):
                    opened.branches.delete(name)
            except ValueError:
                if self._has(name):
                    raise
        # Lance deletes nothing of one that was cut short before it had a name.
        folder = paths.branch_folder(name)
        left = [info.key for part in _PARTS for info in self._objects().list(f"{folder}/{part}")]
        if left:
            self._objects().delete(left)
        return there or bool(left)

    def _has(self, name: str) -> bool:
        return any(branch.name == name for branch in self.all())
