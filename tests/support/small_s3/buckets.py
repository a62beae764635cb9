"""Objects by bucket and key, with what S3's answers need of them: ETag, time, conditions, parts under way."""

from __future__ import annotations

import hashlib
import itertools
import time
from bisect import bisect_left, insort
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True)
class StoredObject:
    data: bytes
    etag: str
    modified_s: float


@dataclass(frozen=True, slots=True)
class Listing:
    """A page: objects by key, folded prefixes, and the key behind which the next page begins."""

    objects: list[tuple[str, StoredObject]]
    prefixes: list[str]
    next_after: str | None


class PreconditionFailed(Exception):
    """If-None-Match or If-Match does not hold."""


class Buckets:
    """Keys are ``bucket/key``.  Threads may share it: each method is one step."""

    def __init__(self) -> None:
        self._objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._numbers = itertools.count(1)
        self._lock = Lock()

    def get(self, key: str) -> StoredObject | None:
        return self._objects.get(key)

    def put(self, key: str, data: bytes, *, absent: bool = False, match: str | None = None) -> StoredObject:
        """``absent``: only where nothing is; ``match``: only over the object with this ETag."""
        stored = StoredObject(data, f'"{hashlib.md5(data).hexdigest()}"', time.time())
        with self._lock:
            there = self._objects.get(key)
            if (absent and there is not None) or (match is not None and (there is None or there.etag != match)):
                raise PreconditionFailed(key)
            if there is None:
                insort(self._keys, key)
            self._objects[key] = stored
        return stored

    def delete(self, key: str) -> None:
        with self._lock:
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def begin_upload(self) -> str:
        name = f"upload-{next(self._numbers)}"
        self._uploads[name] = {}
        return name

    def put_part(self, upload: str, number: int, data: bytes) -> None:
        self._uploads[upload][number] = data

    def end_upload(self, upload: str) -> bytes:
        """The parts in the order of their numbers."""
        parts = self._uploads.pop(upload)
        return b"".join(parts[number] for number in sorted(parts))

    def list(self, prefix: str, delimiter: str, after: str, most: int) -> Listing:
        """``prefix`` and ``after`` with the bucket."""
        objects: list[tuple[str, StoredObject]] = []
        prefixes: list[str] = []
        last = ""
        with self._lock:
            for key in self._keys[bisect_left(self._keys, max(prefix, after)) :]:
                if not key.startswith(prefix):
                    break
                if key <= after or (prefixes and key.startswith(prefixes[-1])):
                    continue
                if len(objects) + len(prefixes) == most:
                    return Listing(objects, prefixes, last)
                folded = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                if folded[1]:
                    prefixes.append(prefix + folded[0] + delimiter)
                    last = prefixes[-1] + "\U0010ffff"
                else:
                    objects.append((key, self._objects[key]))
                    last = key
        return Listing(objects, prefixes, None)
