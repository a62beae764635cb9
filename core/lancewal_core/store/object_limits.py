"""Largest sizes of stored objects.  An object larger than any of its kind (``object_kinds``) is neither read nor
written.

Anybody who may write to a table's folder may have put an object there.  A reader must know
beforehand how large an object can be.  Writers keep the same limits, so that nothing is written that nobody reads.  The
store checks both (``object_store``, guarantees 5 and 6), so every kind has limits.
"""

from __future__ import annotations

from lancewal_core.errors import ObjectCorrupt, ObjectTooLarge
from lancewal_core.store.object_kinds import kind_of

OTHER_BYTES_MAX = 64 << 20
"""Most bytes of any other object, such as Lance's deletion files: 2 bytes for each of the rows hidden in a fragment, or
less."""


def bytes_max(key: str) -> int:
    """Return the largest size of the object with this key."""
    kind = kind_of(key)
    return OTHER_BYTES_MAX if kind is None else kind.bytes_max


def check_size(key: str, size: int) -> None:
    """Raise ``ObjectCorrupt`` if an object is larger than lancewal ever writes an object of this kind."""
    limit = bytes_max(key)
    if size > limit:
        raise ObjectCorrupt(
            f"{key[:300]} has {size} bytes, more than the {limit} that any object of its kind has: it is not read",
            object=key,
        )


def check_written(key: str, size: int) -> None:
    """Raise ``ObjectTooLarge`` if readers would refuse an object of this size."""
    limit = bytes_max(key)
    if size > limit:
        raise too_large(key, f"{size} bytes, more than the {limit}")


def check_unpacked(key: str, size: int) -> None:
    """Raise ``ObjectTooLarge`` if readers would refuse an object that unpacks to ``size`` bytes."""
    kind = kind_of(key)
    limit = None if kind is None else kind.unpacked_bytes_max
    if limit is not None and size > limit:
        raise too_large(key, f"{size} bytes when unpacked, more than the {limit}")


def too_large(key: str, size: str) -> ObjectTooLarge:
    """Return the error for an object that would be too large.  ``size`` is a text: the object's size, and the limit."""
    kind = kind_of(key)
    what, outgrown = ("object", "nothing was written") if kind is None else (kind.name, kind.outgrown)
    return ObjectTooLarge(
        f"{key[:300]}, a {what}, would have {size} that a reader takes, so it is not written: {outgrown}", object=key
    )
