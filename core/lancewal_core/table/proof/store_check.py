"""Tests everything that tables need of a store, in a folder that is emptied afterwards.

A person runs this against a bucket, before anything depends on it.  Services test less, but at each start
(``store_proof``).

Guarantees
 1. All objects lie in the folder that the caller names.  None of them stays if the credentials may delete.
 2. One broken promise hides no other: each is tested by itself, and all results are returned.  Only a store that
    accepts no object at all ends the check, by the error of ``check_store``.
 3. A passed test is no proof, as for ``store_probe``: a store may break a promise only sometimes.
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
"""Number of objects that the test of listings puts: more than one answer of a store has."""
RACES = 25
"""Number of keys that several writers put at the same time.  A store that breaks its promise in one race of ten
passes one in fourteen checks.  It passes two in three proofs at a service's start."""
_APPENDS = 4
_PATIENT = {"client_max_retries": "10"}
"""Options of Lance for commits at the same time.  Google accepts one write of a key each second, and answers others
with 429."""
_LARGE = 8 << 20
"""Bytes of the largest object that the check puts: more than Lance sends in one part."""


@dataclass(frozen=True, slots=True)
class StorePromise:
    """A promise of a store, and whether the store kept it."""

    text: str
    """The promise, in words."""
    fault: str | None
    """How the store broke the promise; None if it kept it."""


class _Broken(Exception):
    """The error of a test in which a store broke a promise."""


_ANY = (_Broken, LancewalError, OSError, ValueError, RuntimeError)
"""Errors by which a test fails.  Lance raises the last three."""


def check_promises(
    store: ObjectStore, uri: str, options: Mapping[str, str], tasks: Tasks, new_id: Callable[[], str]
) -> Sequence[StorePromise]:
    """Test the store at ``uri``, an address without objects, and return a result for each promise.

    ``options`` are Lance's storage options.  Raise ``StoreRefused``, ``StoreNotWritable`` or ``StoreUnavailable`` if
    the store accepts no object.
    """
    ordered = local_folder(uri) is None
    first = _fault(lambda: check_store(store, tasks, uri, new_id, RACES), StoreUnsafe)
    checks: Sequence[tuple[str, Callable[[], None]]] = (
        ("an object reads back as it was put, empty or of 8 MiB", lambda: _content(store)),
        ("a range ends where the object ends", lambda: _ranges(store)),
        ("an object that is missing reads as missing, and can be deleted", lambda: _missing(store)),
        (
            "a listing has all keys, in order, and can begin after any of them",
            lambda: _listing(store, tasks, ordered=ordered),
        ),
        ("an entity tag is the same in a put's answer and in a listing", lambda: _tags(store)),
        (f"{_APPENDS} commits of Lance at the same time all succeed", lambda: _commits(uri, dict(options), tasks)),
        ("all objects of this check can be deleted", lambda: _clear(store, tasks)),
    )
    return [
        StorePromise("one of several writers makes an object, and it stays", first),
        *(StorePromise(text, _fault(check, *_ANY)) for text, check in checks),
    ]


def _fault(check: Callable[[], None], *faults: type[Exception]) -> str | None:
    """Call ``check``.  Return its error as text if it is one of ``faults``, or None if there is no error."""
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
        _must(store.put_if_absent(key, b"other") == Taken(), "a second put of the same key was accepted")


def _ranges(store: ObjectStore) -> None:
    store.put_if_absent("range", b"0123456789")
    for start, end, bytes_ in ((2, 5, b"234"), (8, 100, b"89"), (10, 12, b""), (100, 112, b"")):
        found = store.get_range("range", start, end)
        _must(found == bytes_, f"bytes {start} to {end} of an object of 10 bytes are {found!r}")


def _missing(store: ObjectStore) -> None:
    _must(store.get("missing/a") is None, "a read of an object that was never put returned bytes")
    _must(
        store.get_range("missing/a", 0, 4) is None, "a read of a range of an object that was never put returned bytes"
    )
    _must(list(store.list("missing/")) == [], "a listing has objects that were never put")
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
    _must(behind == keys[6:], f"a listing after the sixth key has {len(behind)} keys; expected {len(keys) - 6}")


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
    _must(sorted(rows) == list(range(_APPENDS)), f"the table has {len(rows)} rows after {_APPENDS} commits of one row")


def _clear(store: ObjectStore, tasks: Tasks) -> None:
    tasks.map(lambda info: store.delete([info.key]), store.list(""))
    left = store.list("")
    _must(not left, f"{len(left)} objects are still there, such as {left[0].key if left else ''}")
