"""The kinds of objects below ``_lancewal/``: one entry for each, with the properties of the kind.

Garbage collection takes from here what it may delete and how it counts.  A key that no entry parses does not belong to
lancewal.  ``cli.stored_object`` shows the object of each kind.

Every kind has limits of size, and an object above them is neither read nor written.  Anybody who may write to a
table's folder may have put an object there.  So a reader must know beforehand how large an object can be.  Writers
keep the same limits, so that readers can read all that is written.  The store checks both (``object_store``,
guarantees 5 and 6).  The limits are far above what lancewal writes with any setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from typing import Any

from lancewal_core.errors import ObjectCorrupt, ObjectTooLarge
from lancewal_core.names import paths
from lancewal_core.names.ids import Page, Region
from lancewal_core.names.paths import FlushFile

_MIB = 1 << 20
SEGMENT_ROWS_BYTES_MAX = 512 * _MIB
"""Largest number of unpacked bytes of the rows of a WAL segment.  Ingest cuts segments at 32 MiB, but for one record
that is larger."""
SEGMENT_TRAILER_BYTES_MAX = 32 * _MIB
"""Largest number of bytes of a segment's section table: room for half a million rejected records."""
BUNDLE_BYTES_MAX = 64 * _MIB
"""Largest number of bytes of a bundle; ingest's have 2 MiB at most."""
BUNDLE_ROWS_BYTES_MAX = 128 * _MIB
"""Largest number of bytes of a bundle, unpacked."""
SIDE_FILE_ROWS_BYTES_MAX = 2048 * _MIB
"""Largest number of unpacked bytes of the rows of a flush's side file: twice what ``ingest.seal_bytes`` allows."""
CONFLICTS_BYTES_MAX = 512 * _MIB
"""Largest number of bytes of an object with keys in conflict.  A million keys that wait, with short rows from two
partitions, take 47 MiB (measured)."""
CONFLICTS_ROWS_BYTES_MAX = 1024 * _MIB
"""Largest number of bytes of an object with keys in conflict, unpacked.  A million keys take 167 MiB."""
SMALL_BYTES_MAX = _MIB
"""Largest number of bytes of an object of a small kind, such as a control version or an accepted loss."""
HISTORY_BYTES_MAX = 64 * _MIB
PAGE_BYTES_MAX = 128 * _MIB
"""Largest number of bytes of a state page, packed or not.  There is room for some 400,000 generations, of which all but
the newest of each region wait for their merge."""

OTHER_BYTES_MAX = 64 * _MIB
"""Largest number of bytes of any other object, such as Lance's deletion files.  Such a file has at most 2 bytes for
each row that is hidden in its fragment."""


class Collected(Enum):
    """Policy of garbage collection for the objects of a kind."""

    WHEN_FREE = "deleted a grace period after it is no longer needed"
    WHEN_OLD = "deleted long after a newer object replaced it, or after its purpose ended"
    NEVER = "kept for ever"
    NEVER_BUT_SHOWN = "left alone, and shown as left over when it is old"


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """One kind of objects."""

    name: str
    """Name of one object of the kind in ``lancewal inspect``."""
    counted_as: str
    """Name of several objects of the kind in ``lancewal gc``."""
    parse: Callable[[str], object | None]
    """Function that parses the key of an object of this kind.  It returns None for any other key."""
    bytes_max: int = SMALL_BYTES_MAX
    unpacked_bytes_max: int | None = None
    """Largest number of bytes that an object may unpack to; None: nothing in it is compressed."""
    collected: Collected = Collected.NEVER
    outgrown: str = ""
    """End of the error about an object above ``bytes_max``: the consequence, or what a person does."""

    def region(self, key: str) -> Region | None:
        """Return the region that the object with this key belongs to; None if it belongs to no single region."""
        parsed = self.parse(key)
        of = parsed[0] if isinstance(parsed, tuple) else None
        return of if isinstance(of, Region) else None

    def page(self, key: str) -> Page | None:
        """Return the page that the object with this key is a version of; None if it is not a version of a page."""
        parsed = self.parse(key)
        of = parsed[0] if isinstance(parsed, tuple) else None
        return of if isinstance(of, Page) else None


def _flush_file(file: FlushFile, key: str) -> tuple[Any, ...] | None:
    parsed = paths.parse_flush_file(key)
    return parsed if parsed is not None and parsed[1] is file else None


KINDS: tuple[ObjectKind, ...] = (
    ObjectKind(
        "segment", "WAL segments", paths.parse_wal_segment, SEGMENT_ROWS_BYTES_MAX + SEGMENT_TRAILER_BYTES_MAX,
        SEGMENT_ROWS_BYTES_MAX, Collected.WHEN_FREE,
    ),
    ObjectKind(
        "bundle", "bundles of WAL segments", paths.parse_wal_bundle, BUNDLE_BYTES_MAX, BUNDLE_ROWS_BYTES_MAX,
        Collected.WHEN_FREE,
    ),
    ObjectKind(
        "flush", "files of flushes", partial(_flush_file, FlushFile.MANIFEST), 16 * _MIB, collected=Collected.WHEN_FREE,
    ),
    ObjectKind(
        "deleted keys", "files of flushes", partial(_flush_file, FlushFile.DELETES), 1024 * _MIB,
        SIDE_FILE_ROWS_BYTES_MAX, Collected.WHEN_FREE,
    ),
    ObjectKind(
        "patches", "files of flushes", partial(_flush_file, FlushFile.PATCHES), 1024 * _MIB,
        SIDE_FILE_ROWS_BYTES_MAX, Collected.WHEN_FREE,
    ),
    ObjectKind(
        "part of a key run", "parts of key runs", paths.parse_key_part, 2048 * _MIB, None, Collected.WHEN_FREE,
        "the runs stay as they are, and lookups are slower",
    ),
    ObjectKind(
        "state page", "pages of partition states", paths.parse_page_version, PAGE_BYTES_MAX, PAGE_BYTES_MAX,
        Collected.WHEN_OLD, "run the flusher: once generations are merged, they are removed from the page",
    ),
    ObjectKind(
        "key catalog", "key catalog versions", paths.parse_key_catalog_version, 256 * _MIB, None, Collected.WHEN_OLD,
        "files without a run are scanned; `lancewal compact` makes fewer of them",
    ),
    ObjectKind(
        "history page", "history pages", paths.parse_history_page, HISTORY_BYTES_MAX, None, Collected.WHEN_OLD,
        "its generations stay in the region's state until they are older than the history window",
    ),
    ObjectKind(
        "keys in conflict", "keys in conflict", paths.parse_conflicts_object, CONFLICTS_BYTES_MAX, CONFLICTS_ROWS_BYTES_MAX,
        Collected.WHEN_OLD, "too many keys came through two partitions: correct the producers",
    ),
    ObjectKind("parcel", "parcels of tasks", paths.parse_parcel_part, 64 * _MIB, collected=Collected.WHEN_OLD),
    ObjectKind(
        "contract", "contract versions", paths.parse_contract_version, 16 * _MIB,
        outgrown="the table needs fewer columns, shorter names or fewer partitions",
    ),
    ObjectKind("control", "control versions", paths.parse_control_version),
    ObjectKind("writer schema", "writer schemas", paths.parse_writer_schema_version, 8 * _MIB),
    ObjectKind("drain", "ends of old partitions", paths.parse_drain_version, 16 * _MIB),
    ObjectKind("merge record", "merge records", paths.parse_merge_record, 64 * _MIB),
    ObjectKind("finished merge", "merge records", paths.parse_merge_finished),
    ObjectKind("accepted loss", "accepted losses", paths.parse_loss_record),
    ObjectKind("beginning of a load", "beginnings of loads", paths.parse_load_record, 64 * _MIB),
    ObjectKind(
        "subscription", "subscriptions", paths.parse_subscription_version, 64 * _MIB, collected=Collected.WHEN_OLD,
    ),
    ObjectKind(
        "list of subscriptions", "lists of subscriptions", paths.parse_subscription_names,
        collected=Collected.WHEN_OLD, outgrown="drop subscriptions that nobody uses",
    ),
    ObjectKind("store proof", "proofs of the store", paths.parse_store_proof),
    ObjectKind("probe", "probes", paths.parse_probe, collected=Collected.NEVER_BUT_SHOWN),
)  # fmt: skip
"""All kinds, in the order in which ``lancewal gc`` counts them.  No key is of two kinds."""


@lru_cache(maxsize=256)
def kind_of(key: str) -> ObjectKind | None:
    """Return the kind of the object with this key; None if no object of lancewal has such a key.

    Every request asks for it, mostly for a key that was asked for a moment ago, so the latest answers are cached.
    """
    if not key.startswith(paths.ROOT):
        return None
    return next((kind for kind in KINDS if kind.parse(key) is not None), None)


_OTHER = ObjectKind("object", "other objects", lambda key: None, OTHER_BYTES_MAX)
"""Kind for the limits of an object that has none of the kinds in ``KINDS``."""


def _limits(key: str) -> ObjectKind:
    return kind_of(key) or _OTHER


def bytes_max(key: str) -> int:
    """Return the largest size of the object with this key."""
    return _limits(key).bytes_max


def check_size(key: str, size: int) -> None:
    """Raise ``ObjectCorrupt`` if an object is larger than any of its kind. lancewal cannot have written such an
    object."""
    limit = bytes_max(key)
    if size > limit:
        raise ObjectCorrupt(
            f"{key[:300]} has {size} bytes, more than the {limit} that any object of its kind has: it is not read",
            object=key,
        )


def check_written(key: str, size: int) -> None:
    """Raise ``ObjectTooLarge`` if an object of ``size`` bytes is larger than readers accept."""
    limit = bytes_max(key)
    if size > limit:
        raise too_large(key, f"{size} bytes, more than the {limit}")


def check_unpacked(key: str, size: int) -> None:
    """Raise ``ObjectTooLarge`` if an object unpacks to ``size`` bytes, and readers accept fewer."""
    limit = _limits(key).unpacked_bytes_max
    if limit is not None and size > limit:
        raise too_large(key, f"{size} bytes when unpacked, more than the {limit}")


def too_large(key: str, size: str) -> ObjectTooLarge:
    """Return the error for an object that would be too large.  ``size`` is a text: the object's size, and the limit."""
    kind = _limits(key)
    return ObjectTooLarge(
        f"{key[:300]}, a {kind.name}, would have {size} that a reader takes, so it is not written"
        + (kind.outgrown and f": {kind.outgrown}"),
        object=key,
    )
