"""Pack tasks for other processes, as a *parcel*.

Guarantees
 1. ``load`` returns the tasks that were packed.  Values that several tasks hold, such as the set of all keys, are in a
    parcel once, and each process loads them once, however many tasks it runs.
 2. A small parcel is sent inside the function that Spark sends to executors.  A larger one is stored in the table's
    store while its tasks run: Spark Connect limits the size of a message, a table's keys have no limit, and a
    broadcast exists only in classic Spark.
 3. A parcel is written before any task runs and never changes.  Garbage collection deletes a parcel that a crash has
    left behind (``garbage.collect``).  A task whose parcel is gone fails with ``PlanStale``.
 4. Bytes from the store are unpickled only if their sha256 is the one that was sent with the function; otherwise
    ``ObjectCorrupt`` is raised.  A person who can write to the store can therefore not run code on executors.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import accumulate
from typing import Any

from lancewal_core.errors import ObjectCorrupt, PlanStale
from lancewal_core.names import paths
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.object_store import ObjectStore, put_own

INLINE_BYTES_MAX = 1 << 20
"""Largest size in bytes of a parcel that is sent inside the function.  Above this size Spark no longer sends a
function as it is."""
PART_BYTES = 32 << 20
"""Bytes of one stored object of a parcel: small enough for the store client's time limit on a slow connection."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Packed tasks, or the name under which they are stored.  Task i is the bytes from ``ends[i]`` to ``ends[i + 1]``.
    The bytes before ``ends[0]`` are values that tasks share.
    """

    name: str
    ends: tuple[int, ...]
    inline: bytes | None
    """The parcel's bytes; None if they are stored, in objects of ``PART_BYTES`` each under ``name``."""
    digests: tuple[bytes, ...] = ()
    """First the sha256 of the part that the tasks share, then the sha256 of each task.  Empty for an inline parcel."""

    def __len__(self) -> int:
        return len(self.ends) - 1


def send(store: ObjectStore, pool: Tasks, tasks: Sequence[object], name: str) -> Parcel:
    """Pack the tasks into a parcel.  Store its bytes if they are more than ``INLINE_BYTES_MAX``.  ``name`` must be
    new for each parcel.
    """
    shared = _shared(tasks)
    pieces = [pickle.dumps(shared, 5), *(_pickled(task, shared) for task in tasks)]
    ends = tuple(accumulate(len(piece) for piece in pieces))
    data = b"".join(pieces)
    if len(data) <= INLINE_BYTES_MAX:
        return Parcel(name, ends, data)
    parcel = Parcel(name, ends, None, tuple(hashlib.sha256(piece).digest() for piece in pieces))

    def put(part: int) -> None:
        key = paths.parcel_part(name, part)
        put_own(store, key, data[part * PART_BYTES : (part + 1) * PART_BYTES], "it hands tasks to executors")

    pool.map(put, range(_parts(parcel)))
    return parcel


def discard(store: ObjectStore, parcel: Parcel) -> None:
    """Delete the objects that ``send`` has stored for this parcel."""
    if parcel.inline is None:
        store.delete([paths.parcel_part(parcel.name, part) for part in range(_parts(parcel))])


class OpenParcel:
    """A parcel in a process that runs its tasks.  It loads single tasks."""

    def __init__(self, store: ObjectStore, pool: Tasks, parcel: Parcel) -> None:
        self._store = store
        self._pool = pool
        self._parcel = parcel
        self._shared: list[Any] = pickle.loads(self._read(0))

    def load(self, place: int) -> Any:
        """Return the task at index ``place``.  Raises ``PlanStale`` if the parcel is gone, and ``ObjectCorrupt`` if it
        was changed.
        """
        return _Unpickler(self._read(place + 1), self._shared).load()

    def _read(self, piece: int) -> bytes:
        """Return the bytes of the part that the tasks share (0), or of a task (from 1 on)."""
        parcel = self._parcel
        first, end = (parcel.ends[piece - 1] if piece else 0), parcel.ends[piece]
        if parcel.inline is not None:
            return parcel.inline[first:end]
        parts = range(first // PART_BYTES, -(-end // PART_BYTES))
        data = b"".join(self._pool.map(lambda part: self._read_part(part, first, end), parts))
        if hashlib.sha256(data).digest() != parcel.digests[piece]:
            raise ObjectCorrupt(
                f"{paths.parcel_part(parcel.name, parts[0])!r}, which hands tasks to executors, was changed: it is not "
                "unpickled. Find out who else writes to the store",
                object=paths.parcel_part(parcel.name, parts[0]),
            )
        return data

    def _read_part(self, part: int, first: int, end: int) -> bytes:
        key = paths.parcel_part(self._parcel.name, part)
        begins = part * PART_BYTES
        start, stop = max(first - begins, 0), min(end - begins, PART_BYTES)
        data = self._store.get_range(key, start, stop)
        if data is None or len(data) != stop - start:
            raise PlanStale(
                f"{key!r}, which hands tasks to executors, is gone: their merge or compaction has ended", object=key
            )
        return data


def _parts(parcel: Parcel) -> int:
    return -(-parcel.ends[-1] // PART_BYTES)


def _shared(tasks: Sequence[object]) -> list[object]:
    """Return the values that more than one task holds as a member."""
    members = {id(task): _members(task) for task in tasks}
    holders = Counter(key for held in members.values() for key in held)
    return list({key: held[key] for held in members.values() for key in held if holders[key] > 1}.values())


def _members(task: object) -> dict[int, object]:
    if not is_dataclass(task):
        return {}
    return {id(value): value for value in (getattr(task, member.name) for member in fields(task))}


def _pickled(task: object, shared: Sequence[object]) -> bytes:
    data = io.BytesIO()
    _Pickler(data, {id(value): place for place, value in enumerate(shared)}).dump(task)
    return data.getvalue()


class _Pickler(pickle.Pickler):
    """Pickler that writes the index of a shared value instead of the value."""

    def __init__(self, file: io.BytesIO, places: dict[int, int]) -> None:
        super().__init__(file, 5)
        self._places = places

    def persistent_id(self, obj: object) -> int | None:
        return self._places.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, shared: Sequence[object]) -> None:
        super().__init__(io.BytesIO(data))
        self._shared = shared

    def persistent_load(self, pid: Any) -> object:
        return self._shared[pid]
