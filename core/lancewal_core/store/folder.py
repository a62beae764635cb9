"""``ObjectStore`` over a local folder.  No link inside the folder is followed.

Anybody who may write into a table's folder could put a link there that leads into another folder.  A process of this
table would then read, list or delete the objects of that folder.

Guarantees, besides those of ``object_store``
 1. Each folder on the path to an object is opened relative to its parent folder, and never through a link.  An opened
    folder stays the same folder, so a link that replaces it meanwhile has no effect.
 2. ``LinkRefused`` names the link that was met on the path.  A listing raises it for any link that it meets, since the
    listing cannot tell what is missing in its answer.  ``delete`` of an object that is a link removes the link.
 3. The table's folder itself may be a link, or be reached through links.
 4. A folder where an object belongs, and a file where a folder belongs, are ``ObjectCorrupt``, never a missing object.
 5. A put is staged as ``<name>#<number>`` beside its object, as Lance and obstore do; a listing leaves such names out.
 6. The table's folder itself is never made.  If it is not there, the disk may not be mounted: ``StoreUnavailable``.
    ``TableMissing`` says that the folder was deleted or moved.  It is raised only if the nearest folder above that
    exists is the same as when the store was opened, and on the device where the folders below it were.
 7. An empty folder on another device than before is a mount point without its disk: ``StoreUnavailable``, not a table
    without objects.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from lancewal_core.errors import LancewalError, LinkRefused, ObjectCorrupt, StoreUnavailable, TableMissing
from lancewal_core.store.object_kinds import check_size, check_written
from lancewal_core.store.object_store import ObjectInfo, PutOutcome, PutUnknown, Stored, Taken, no_key
from lancewal_core.store.refusal import refusal, what_to_set

_ROOT = os.O_RDONLY | os.O_DIRECTORY
_FOLDER = _ROOT | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe would be waited for
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_STAGED = re.compile(r"#\d+$")


class FolderStore:
    """Object store in a local folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = SeenFolder.at(folder)

    def check(self) -> None:
        """Raise an error if the folder is not there (guarantees 6 and 7)."""
        with opened_folder(self._folder, (), seen=self._seen):
            pass

    def get(self, key: str) -> bytes | None:
        with self._asked("read", key), opened_object(self._folder, key, self._seen) as file:
            if file is None:
                return None
            size = os.fstat(file).st_size
            check_size(key, size)
            return _read(file, 0, size)

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        with self._asked("read", key), opened_object(self._folder, key, self._seen) as file:
            return None if file is None else _read(file, start, min(end, os.fstat(file).st_size))

    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes; None if there is no such object."""
        with self._asked("look at", key), opened_object(self._folder, key, self._seen) as file:
            return None if file is None else os.fstat(file).st_size

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        check_written(key, len(data))
        *folders, name = _parts(key)
        try:
            with opened_folder(self._folder, folders, make=True, seen=self._seen) as parent:
                try:
                    etag = _put(parent, name, data)
                except FileExistsError:
                    if stat.S_ISDIR(_mode(parent, name)):
                        raise _folder_in_place(self._folder, key) from None
                    return Taken()
        except OSError as error:
            _check_length(error, key)
            cause = f"{type(error).__name__} while writing {key!r} to {self._folder}: {error.strerror}"
            return PutUnknown(f"{cause}{what_to_set(cause)}")
        return Stored(etag)

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        found: list[ObjectInfo] = []
        waiting = [prefix.rstrip("/")]
        with self._asked("list", prefix):
            while waiting:
                folder = waiting.pop()
                with suppress(FileNotFoundError):  # it is gone, or was never there
                    found.extend(self._listed(folder, after or "", waiting))
        return found

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            *folders, name = _parts(key)
            with (
                self._asked("delete", key),
                suppress(FileNotFoundError),
                opened_folder(self._folder, folders, seen=self._seen) as parent,
            ):
                os.unlink(name, dir_fd=parent)

    def _listed(self, folder: str, after: str, folders: MutableSequence[str]) -> Iterator[ObjectInfo]:
        """Yield the objects directly in ``folder``, and add its subfolders to ``folders``."""
        parts = _parts(folder) if folder else []
        with opened_folder(self._folder, parts, seen=self._seen) as opened, os.scandir(opened) as entries:
            for entry in entries:
                name = entry.name
                if not name.isascii() and not _is_text(name):
                    continue
                key = f"{folder}/{name}" if folder else name
                if entry.is_symlink():
                    raise _link(self._folder, key)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(key)
                elif key > after and not _STAGED.search(name):
                    with suppress(FileNotFoundError):
                        about = entry.stat(follow_symlinks=False)
                        yield ObjectInfo(key, about.st_size, about.st_mtime_ns // 1_000_000, _etag(about))

    @contextmanager
    def _asked(self, act: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            _check_length(error, key)
            said = f"{type(error).__name__}: {error.strerror}"
            raise refusal(said)(
                f"could not {act} {key!r} at {self._folder}: {said}{what_to_set(said)}", object=key
            ) from error


_Identity = tuple[int, int]
"""Device and inode of a folder."""


@dataclass(frozen=True, slots=True)
class SeenFolder:
    """Identity of a folder, with links resolved, and of all folders above it, nearest first, as seen earlier.  An
    identity is None if the folder did not exist."""

    folders: Sequence[tuple[str, _Identity | None]]

    @staticmethod
    def at(folder: Path) -> SeenFolder:
        real = Path(os.path.realpath(folder))
        return SeenFolder([(str(one), _identity(one)) for one in (real, *real.parents)])

    def check(self, opened: int) -> None:
        """Raise ``StoreUnavailable`` if the opened folder is a mount point without its disk (guarantee 7)."""
        root, before = self.folders[0]
        if before is None or os.fstat(opened).st_dev == before[0]:
            return
        with os.scandir(opened) as entries:
            if next(entries, None) is None:
                raise StoreUnavailable(
                    f"the folder {root} is empty and on another device than before: mount its disk again"
                )

    def why_missing(self) -> LancewalError:
        """Return the error for a folder that is not there (guarantee 6)."""
        root = self.folders[0][0]
        by_a_link = _identity(root) is not None  # and the link is not there: its disk may not be mounted
        for (_, below), (above, before) in pairwise([] if by_a_link else self.folders):
            now = _identity(above)
            if now is not None:
                if below is not None and now == before and now[0] == below[0]:
                    return TableMissing(
                        f"the folder {root} was deleted or moved while this process worked on it: nothing more is written. "
                        "Bring the folder back. If it was moved, open the table at its new address"
                    )
                break
        return StoreUnavailable(f"there is no folder {root} any more: it was there when the table was opened")


def _identity(folder: str | Path) -> _Identity | None:
    try:
        about = os.stat(folder)
    except OSError:
        return None
    return about.st_dev, about.st_ino


@contextmanager
def opened_folder(
    root: Path, folders: Sequence[str], *, make: bool = False, seen: SeenFolder | None = None
) -> Iterator[int]:
    """Open the folder that these names lead to from ``root``; yield its descriptor.  ``make`` makes missing folders.

    ``seen``: ``root`` as it was when the store was opened.  Without it, a missing root is always
    ``StoreUnavailable``.
    """
    try:
        opened = os.open(root, _ROOT)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise (seen or SeenFolder([(str(root), None)])).why_missing() from error
    try:
        if seen is not None:
            seen.check(opened)
        for depth, name in enumerate(folders):
            below = _opened_below(opened, name, make, root, folders[: depth + 1])
            os.close(opened)
            opened = below
        yield opened
    finally:
        os.close(opened)


@contextmanager
def opened_object(root: Path, key: str, seen: SeenFolder | None = None) -> Iterator[int | None]:
    """Open the object with this key below ``root``; yield its descriptor, or None if there is none.  ``seen``: see
    ``opened_folder``."""
    *folders, name = _parts(key)
    try:
        with opened_folder(root, folders, seen=seen) as parent:
            file = os.open(name, _FILE, dir_fd=parent)
    except FileNotFoundError:
        file = None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link(root, key) from error
        if error.errno == errno.ENXIO:  # a socket
            raise _no_file(root, key) from error
        raise
    if file is None:
        yield None
        return
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise _folder_in_place(root, key)
        if not stat.S_ISREG(mode):
            raise _no_file(root, key)
        yield file
    finally:
        os.close(file)


def refuse_links(root: Path, folders: Sequence[str], *, below: bool = False) -> None:
    """Raise ``LinkRefused`` if one of these folders is a link; with ``below`` also if anything in them is, at any
    depth."""
    waiting = [folder.rstrip("/") for folder in folders]
    while waiting:
        folder = waiting.pop()
        with suppress(FileNotFoundError), opened_folder(root, _parts(folder)) as opened:
            if below:
                waiting.extend(_folders_in(opened, root, folder))


def folders_in(root: Path, folder: str) -> list[str]:
    """Return the keys of the folders directly in ``folder``; an empty list if ``folder`` does not exist."""
    folder = folder.rstrip("/")
    with suppress(FileNotFoundError), opened_folder(root, _parts(folder)) as opened:
        return sorted(_folders_in(opened, root, folder))
    return []


def _folders_in(opened: int, root: Path, folder: str) -> Iterator[str]:
    with os.scandir(opened) as entries:
        for entry in entries:
            key = f"{folder}/{entry.name}"
            if entry.is_symlink():
                raise _link(root, key)
            if entry.is_dir(follow_symlinks=False):
                yield key


def _opened_below(parent: int, name: str, make: bool, root: Path, folders: Sequence[str]) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        return _opened_below(parent, name, False, root, folders)
    except OSError as error:
        # Refused in any case; which of the two it is, is for the message.
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and stat.S_ISLNK(_mode(parent, name)):
            raise _link(root, "/".join(folders)) from error
        if error.errno == errno.ENOTDIR:
            key = "/".join(folders)
            raise ObjectCorrupt(
                f"a file lies at {key} in {root}, where a folder belongs: remove the file", object=key
            ) from error
        raise


def _mode(parent: int, name: str) -> int:
    """Return the mode of a file, of a folder, or of a link itself; 0 if nothing has this name."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _folder_in_place(root: Path, key: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"a folder lies at {key} in {root}, where an object belongs: remove it", object=key)


def _no_file(root: Path, key: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"{key} in {root} is neither a file nor a folder: it is not read", object=key)


def _link(root: Path, key: str) -> LinkRefused:
    return LinkRefused(
        f"{root}/{key} is a symbolic link: links inside a table's folder are not followed. Replace the link by "
        "the files it leads to. To keep the table on another disk, make the table's whole folder a link",
        object=key,
    )


def _put(parent: int, name: str, data: bytes) -> str:
    """Put the file and return its entity tag; ``FileExistsError`` if an object has that name."""
    staged, file = _staged(parent, name)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            etag = _etag(os.fstat(file))
        finally:
            os.close(file)
        os.link(staged, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    finally:
        with suppress(OSError):
            os.unlink(staged, dir_fd=parent)
    return etag


def _staged(parent: int, name: str) -> tuple[str, int]:
    number = 1
    while True:
        staged = f"{name}#{number}"
        try:
            return staged, os.open(staged, _NEW_FILE, 0o666, dir_fd=parent)
        except FileExistsError:  # another writer's, or one that died
            number += 1


def _read(file: int, start: int, end: int) -> bytes:
    parts: list[bytes] = []
    while start < end and (data := os.pread(file, end - start, start)):
        parts.append(data)
        start += len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _etag(about: os.stat_result) -> str:
    """Return the entity tag of a file, in the form that obstore gives it."""
    return f'"{about.st_ino:x}-{about.st_mtime_ns // 1000:x}-{about.st_size:x}"'


def _parts(key: str) -> list[str]:
    parts = key.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts) or _STAGED.search(key) or not _is_text(key):
        raise no_key(key)
    return parts


def _is_text(name: str) -> bool:
    """Return whether a file's name can be part of a key.  Keys are UTF-8, but a file's name may be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_length(error: OSError, key: str) -> None:
    if error.errno == errno.ENAMETOOLONG:
        raise no_key(key) from error
