"""Trying all that tables need of a store, in a folder that is deleted afterwards.

A person runs this against a bucket, before anything depends on it.  Services prove less at their start, and each time
(``store_proof``).

Guarantees
 1. Everything lies in the folder that the caller names, and nothing of it stays if the credentials may delete.
 2. One broken promise hides no other: each is tried by itself, and all are returned.  Only a store that takes no object
    at all ends the check, by the error of ``check_store``.
 3. A promise that was kept is no proof, as for ``store_probe``: a store may break it now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import lance
import pyarrow as pa

from lancewal_core.errors import LancewalError, StoreUnsafe
from lancewal_core.process.library_errors import first_line
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.address import local_folder
from lancewal_core.store.object_store import ANSWER_OBJECTS, ObjectStore, Stored, Taken
from lancewal_core.table.proof.store_probe import check_store

LISTED = ANSWER_OBJECTS + 10
"""Objects that are listed: more than one answer has."""
RACES = 25
"""Keys that several writers put at once.  A store that loses one race in ten passes once in fourteen checks.  It passes
the proof at a service's start in two of three."""
_APPENDS = 4
_PATIENT = {"client_max_retries": "10"}
"""Options of Lance for commits that race: Google takes one write of a key each second, and answers the others with 429."""
_LARGE = 8 << 20
"""Bytes of the largest object that is put: more than Lance sends in one part."""


@dataclass(frozen=True, slots=True)
class StorePromise:
    """One promise, and whether the store kept it."""

    text: str
    fault: str | None
    """How the store broke it; None if it was kept."""


class _Broken(Exception):
    """A store answered otherwise than it must."""


_ANY = (_Broken, LancewalError, OSError, ValueError, RuntimeError)
"""The last three are Lance's."""


def check_promises(
    store: ObjectStore, uri: str, options: Mapping[str, str], tasks: Tasks, new_id: Callable[[], str]
) -> Sequence[StorePromise]:
    """Try a store.  ``store`` is at ``uri``, a folder without objects; ``options`` are Lance's.

    Raises ``StoreRefused``, ``StoreNotWritable`` or ``StoreUnavailable`` if the store takes no object.
    """
    ordered = local_folder(uri) is None
    first = _fault(lambda: check_store(store, tasks, uri, new_id, RACES), StoreUnsafe)
    checks: Sequence[tuple[str, Callable[[], None]]] = (
        ("an object reads back as it was put, empty or of 8 MiB", lambda: _content(store)),
        ("a range ends where the object ends", lambda: _ranges(store)),
        ("an object that is missing reads as missing, and can be deleted", lambda: _missing(store)),
        (
            "a listing has all keys, in order, and begins behind any of them",
            lambda: _listing(store, tasks, ordered=ordered),
        ),
        ("an entity tag is the same in a put's answer and in a listing", lambda: _tags(store)),
        (f"of {_APPENDS} commits of Lance at once none is lost", lambda: _commits(uri, dict(options), tasks)),
        ("all that was put here can be deleted", lambda: _clear(store, tasks)),
    )
    return [
        StorePromise("one of several writers makes an object, and it stays", first),
        *(StorePromise(text, _fault(check, *_ANY)) for text, check in checks),
    ]


def _fault(check: Callable[[], None], *faults: type[Exception]) -> str | None:
    """Return how ``check`` fails, by one of ``faults``; None if it does not."""
    try:
        check()
    except faults as error:
        return f"{error.kind}: {error}" if isinstance(error, LancewalError) else first_line(error)
    return None


def _must(kept: bool, broken: str) -> None:
    if not kept:
        raise _Broken(broken)


def _content(store: ObjectStore) -> None:
    for key, data in (("content/empty", b""), ("content/large", bytes(range(256)) * (_LARGE // 256))):
        put = store.put_if_absent(key, data)
        _must(isinstance(put, Stored), f"a put of {len(data)} bytes was answered by {put}")
        _must(store.get(key) == data, f"an object of {len(data)} bytes reads back with other bytes")
        _must(store.put_if_absent(key, b"other") == Taken(), "a second put of a key was taken")


def _ranges(store: ObjectStore) -> None:
    store.put_if_absent("range", b"0123456789")
    for start, end, bytes_ in ((2, 5, b"234"), (8, 100, b"89"), (10, 12, b""), (100, 112, b"")):
        found = store.get_range("range", start, end)
        _must(found == bytes_, f"bytes {start} to {end} of an object of 10 bytes are {found!r}")


def _missing(store: ObjectStore) -> None:
    _must(store.get("missing/a") is None, "reading it gives something")
    _must(store.get_range("missing/a", 0, 4) is None, "reading a range of it gives something")
    _must(list(store.list("missing/")) == [], "a listing has it")
    store.delete(["missing/a", "missing/b"])


def _listing(store: ObjectStore, tasks: Tasks, *, ordered: bool) -> None:
    keys = [f"list/{number:06d}" for number in range(LISTED)]
    tasks.map(lambda key: store.put_if_absent(key, key.encode()), keys)
    found = [info.key for info in store.list("list/")]
    if not ordered:  # a local folder
        found.sort()
    _must(all(one < other for one, other in pairwise(found)), "the keys are not in order")
    _must(found == keys, f"it has {len(found)} of {len(keys)} keys")
    behind = sorted(info.key for info in store.list("list/", after=keys[5]))
    _must(behind == keys[6:], f"it has {len(behind)} keys behind one that has {len(keys) - 6} behind it")


def _tags(store: ObjectStore) -> None:
    put = store.put_if_absent("tag/one", b"one")
    listed = [info.etag for info in store.list("tag/")]
    _must(isinstance(put, Stored) and put.etag is not None, f"a put was answered by {put}")
    _must(
        isinstance(put, Stored) and listed == [put.etag], f"a put was answered by {put}, and the listing has {listed}"
    )


def _commits(uri: str, options: dict[str, str], tasks: Tasks) -> None:
    options = {**options, **_PATIENT}
    lance.write_dataset(pa.table({"id": pa.array([], pa.int64())}), uri, storage_options=options)

    def append(number: int) -> None:
        lance.write_dataset(pa.table({"id": [number]}), uri, mode="append", storage_options=options)

    tasks.map(append, range(_APPENDS))
    rows = lance.dataset(uri, storage_options=options).to_table()["id"].to_pylist()
    _must(sorted(rows) == list(range(_APPENDS)), f"{len(rows)} rows of {_APPENDS} are there")


def _clear(store: ObjectStore, tasks: Tasks) -> None:
    tasks.map(lambda info: store.delete([info.key]), store.list(""))
    left = store.list("")
    _must(not left, f"{len(left)} objects are still there, such as {left[0].key if left else ''}")
