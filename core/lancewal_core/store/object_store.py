"""Object storage as the protocol needs it: get, list, delete, and put-if-absent with three outcomes.

Guarantees that an implementation gives
 1. ``get`` returns the whole object as it was put, or None only if the store said "no such object".
 2. ``put_if_absent`` never replaces an object.  ``Stored``: this very call made the object.  ``Taken``: the store said
    that an object is (or may be) there; it may be our own, put by an earlier try whose reply was lost.  ``PutUnknown``:
    no verdict; the object may appear later.
 3. ``list`` may be stale or partial: a hint, never a proof of absence.
 4. Keys are relative to the store's root, ``/``-separated, without a leading slash.  A text that cannot be a key is
    ``ObjectCorrupt``: such a text can only come from a stored object.
 5. ``get`` fetches no object that is larger than any of its kind (``object_kinds``): ``ObjectCorrupt``.
 6. ``put_if_absent`` sends no object that is larger than any of its kind: ``ObjectTooLarge``.
 7. If a store gives entity tags, ``Stored`` and each listing have the same tag for an object.  Other bytes at that key
    have another tag.

``put_once`` turns the outcomes of a put (guarantee 2) into those that the protocols use, by reading the object back.
``put_new`` and ``put_own`` are for callers that cannot go on without a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from lancewal_core.errors import ObjectCorrupt, StoreUnavailable
from lancewal_core.store.refusal import refusal

ANSWER_OBJECTS = 1000
"""Largest number of objects in one answer of an S3 listing.  A longer listing takes several requests, one after the
other."""
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Stored:
    """The object was stored by this call."""

    etag: str | None = field(default=None, compare=False)
    """Entity tag that the store gave the object, if it gives one.  A listing shows the same tag while that object lies
    there."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The store refused the put, because there is an object already, or because another request conflicted."""


@dataclass(frozen=True, slots=True)
class PutUnknown:
    """The store did not say whether it stored the object."""

    cause: str


PutOutcome = Stored | Taken | PutUnknown


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing."""

    key: str
    size: int
    modified_ms: int
    etag: str | None = field(default=None, compare=False)
    """Entity tag, if the store gives any.  Another object at that key has another tag."""


class ObjectStore(Protocol):
    """An object store (module docstring).  Every method may raise ``StoreUnavailable``."""

    def get(self, key: str) -> bytes | None: ...

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        """Return the bytes [start, end) of an object, cut at its end; None if there is no such object."""

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome: ...

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        """Return the objects whose key starts with ``prefix`` (a folder, ending with a slash), at any depth.  With
        ``after``, return only those whose key comes after it in key order.

        If the store lists in key order, ``limit`` gives about that many objects, the first ones in key order.  If at
        least ``limit`` objects come, there may be more.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, one after the other in this order; an absent object is not an error.

        If an error is raised, the object that it names and those after it may still be there.
        """


@dataclass(frozen=True, slots=True)
class Done:
    """The object holds the bytes of this process."""

    etag: str | None = field(default=None, compare=False)
    """Entity tag of the object.  None also if the outcome was known by reading back."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The object holds other bytes, and this will not change."""

    found: bytes


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome of the put is unknown.  The caller may put the same bytes at the same key again."""

    cause: str


PutOnce = Done | Lost | Unknown


def put_once(store: ObjectStore, key: str, data: bytes) -> PutOnce:
    """Put ``data`` at ``key`` unless there is an object.  If the reply is lost, read the object back to find out who
    wrote it.

    ``data`` must differ from the bytes of any other process, for example by a writer id or a write id.  If it may be
    equal, it must not matter which process wrote the object.
    """
    cause = "the store reports a conflict and shows no object"
    try:
        outcome = store.put_if_absent(key, data)
    except StoreUnavailable as error:
        outcome = PutUnknown(str(error))
    match outcome:
        case Stored(etag=etag):
            return Done(etag)
        case Taken():
            pass
        case PutUnknown(cause=why):
            cause = why
        case _:
            assert_never(outcome)
    try:
        found = store.get(key)
    except StoreUnavailable as error:
        return Unknown(str(error))
    if found is None:
        return Unknown(cause)
    return Done() if found == data else Lost(found)


def put_new(store: ObjectStore, key: str, data: bytes, note: str = "") -> Done | Lost:
    """Put an object as ``put_once`` does.  Raises ``StoreUnavailable`` if the outcome is unknown.  ``note`` is added to
    its message.
    """
    outcome = put_once(store, key, data)
    if isinstance(outcome, Unknown):
        raise no_verdict(key, outcome.cause, note)
    return outcome


def put_own(store: ObjectStore, key: str, data: bytes, note: str = "") -> None:
    """Put an object as ``put_new`` does, at a key that only this attempt uses.  Raises ``StoreUnavailable`` also if
    another object is there; the next attempt must use another key.
    """
    if isinstance(put_new(store, key, data, note), Lost):
        raise no_verdict(key, "another object lies there", note)


def no_key(key: str) -> ObjectCorrupt:
    """Return the error for a text that cannot be a key (guarantee 4)."""
    return ObjectCorrupt(f"{key[:_SHOWN]!r} cannot be the key of an object", object=key)


def no_verdict(key: str, cause: str, note: str = "") -> StoreUnavailable:
    """Return the error for a put with an unknown outcome.  ``note`` is added to the message.  The writer may put the
    same bytes again."""
    return refusal(cause)(f"it is unknown whether {key} was written: {cause}{note and f'; {note}'}", object=key)
