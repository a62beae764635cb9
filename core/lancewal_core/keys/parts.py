"""Reading the parts of key runs: memory-mapped where they are files, else kept in memory.

Guarantee: ``open`` returns exactly what was written, or raises ``ObjectMissing`` or ``ObjectCorrupt`` naming the
object.  This also holds if the system refuses a local file, or the memory for it.  A part is checked when this process
first opens it.  A part that the process has written itself (``keep``) need not be fetched.

``MappedParts`` maps the files of a table in a local folder.  For any other store it first copies each part into a
private folder of this process.  The folder takes at most ``bytes_max`` bytes of parts; those unused for longest go
first.  If a part cannot be written there, only speed is lost: the part is then kept in memory.  Linux limits the maps
of a process, so their number is limited too.  Threads may share a ``MappedParts``.  Different parts are opened side by
side.  A part that several threads want at once is fetched once, while the others wait.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Protocol
from weakref import WeakValueDictionary

import google_crc32c
import pyarrow as pa

from lancewal_core.errors import ObjectCorrupt, ObjectMissing
from lancewal_core.keys.catalog import KeyPart
from lancewal_core.keys.run import Entries, decode_part
from lancewal_core.names import paths
from lancewal_core.process.library_errors import first_line
from lancewal_core.store.folder import opened_object
from lancewal_core.store.object_store import ObjectStore

_CHUNK = 1 << 20
_MAPS_MAX = 512
"""Largest number of parts that are open at a time.  So many parts have some hundred million rows."""


class PartSource(Protocol):
    def open(self, part: KeyPart) -> Entries:
        """Return the entries of a part.  Raises ``ObjectMissing`` or ``ObjectCorrupt`` if they cannot be read as they
        were written.
        """

    def at_hand(self, part: KeyPart) -> bool:
        """Return whether the part is open already, so that ``open`` reads nothing."""

    def keep(self, part: KeyPart, data: bytes) -> None:
        """Cache the bytes of a part that this process has just stored."""


class MappedParts:
    """Key parts as memory-mapped files.  ``root`` is the table's folder; None if the table is not in a local folder."""

    def __init__(self, store: ObjectStore, root: Path | None, folder: Path, bytes_max: int) -> None:
        self._store = store
        self._root = root
        self._folder = folder
        self._bytes_max = bytes_max
        self._open: OrderedDict[str, tuple[KeyPart, Entries]] = OrderedDict()
        self._held = 0
        self._lock = Lock()
        """Lock of the fields above.  It is not held during calls of the store or the system."""
        self._turns: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        """Locks by part, each held while the part is opened.  A lock is removed with its last user."""

    def open(self, part: KeyPart) -> Entries:
        with self._lock:
            known = self._known(part)
            if known is not None:
                return known
            turn = self._turns.setdefault(part.object, Lock())
        with turn:
            with self._lock:
                known = self._known(part)
            if known is not None:
                return known
            if self._root is None:
                entries = self._brought(part, fetch(self._store, part))
            else:
                entries = self._mapped_there(part, self._root)
            with self._lock:
                self._keep(part, entries)
            return entries

    def _known(self, part: KeyPart) -> Entries | None:
        known = self._open.get(part.object)
        if known is None or known[0] != part:
            return None
        self._open.move_to_end(part.object)
        return known[1]

    def at_hand(self, part: KeyPart) -> bool:
        with self._lock:
            return self._known(part) is not None

    def keep(self, part: KeyPart, data: bytes) -> None:
        if self._root is None:
            entries = self._brought(part, data)
            with self._lock:
                self._keep(part, entries)

    def _mapped_there(self, part: KeyPart, root: Path) -> Entries:
        try:
            with opened_object(root, part.object) as opened:
                if opened is None:
                    raise _missing(part)
                _check_file(opened, part)
                with pa.memory_map(f"/dev/fd/{opened}") as file:  # by its path another file may be there by now
                    return decode_part(file.read_buffer(), part.object)
        except OSError as error:
            raise ObjectCorrupt(
                f"{part.object}, a part of the key index, cannot be read: {first_line(error)}", object=part.object
            ) from error

    def _brought(self, part: KeyPart, data: bytes) -> Entries:
        path = self._folder / str(paths.parse_key_part(part.object))
        try:
            path.unlink(missing_ok=True)  # whoever has mapped the old file keeps its content
            path.write_bytes(data)
            with pa.memory_map(str(path)) as file:
                return decode_part(file.read_buffer(), part.object)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return decode_part(pa.py_buffer(data), part.object)

    def _keep(self, part: KeyPart, entries: Entries) -> None:
        before = self._open.pop(part.object, None)
        if before is not None:
            self._held -= before[0].size
        self._open[part.object] = (part, entries)
        self._held += part.size
        while len(self._open) > 1 and (self._held > self._bytes_max or len(self._open) > _MAPS_MAX):
            name, (old, _) = self._open.popitem(last=False)
            self._held -= old.size
            if self._root is None:
                # What is mapped stays readable until nobody looks at it any more.
                with contextlib.suppress(FileNotFoundError):
                    (self._folder / str(paths.parse_key_part(name))).unlink()


def fetch(store: ObjectStore, part: KeyPart) -> bytes:
    """Return a part's bytes from the store.  Raises ``ObjectMissing`` or ``ObjectCorrupt`` if they cannot be had as
    they were written."""
    data = store.get(part.object)
    if data is None:
        raise _missing(part)
    if len(data) != part.size or google_crc32c.value(data) != part.crc32c:
        raise _corrupt(part)
    return data


def _check_file(opened: int, part: KeyPart) -> None:
    """Raise ``ObjectCorrupt`` unless the file has the part's size and checksum.  It is read in chunks, to take little
    memory."""
    with open(opened, "rb", closefd=False) as file:
        crc32c = size = 0
        while chunk := file.read(_CHUNK):
            crc32c = google_crc32c.extend(crc32c, chunk)
            size += len(chunk)
    if size != part.size or crc32c != part.crc32c:
        raise _corrupt(part)


def _missing(part: KeyPart) -> ObjectMissing:
    return ObjectMissing(f"{part.object}, a part of the key index, is missing", object=part.object)


def _corrupt(part: KeyPart) -> ObjectCorrupt:
    return ObjectCorrupt(f"{part.object}, a part of the key index, is corrupt: its checksum does not match",
                         object=part.object)  # fmt: skip
