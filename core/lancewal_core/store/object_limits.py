"""How many bytes a stored object of each kind may have, and what those that are compressed may unpack to.

What lies in a table's folder may have been put there by anybody who may write to it; a reader must be able to say beforehand
what it takes.  The limits are far above what lancewal writes by any setting, and writers keep them too, so that nothing is
written that nobody reads.  A store refuses a larger object before it fetches it (``object_store``, guarantee 5).
"""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core import paths
from lancewal_core.errors import ObjectCorrupt
from lancewal_core.paths import SnapshotFile

_MIB = 1 << 20
SEGMENT_ROWS_BYTES_MAX = 512 * _MIB
"""Rows of a WAL segment, unpacked.  Ingest cuts segments at 32 MiB, but for one record that is larger."""
SEGMENT_TRAILER_BYTES_MAX = 32 * _MIB
"""The section table of a segment: that of half a million rejected records."""
SIDE_FILE_ROWS_BYTES_MAX = 2048 * _MIB
"""Rows of a side file of a snapshot, unpacked: twice what ``ingest.seal_bytes`` allows."""
SMALL_BYTES_MAX = _MIB
"""What a person or one process has to say."""
OTHER_BYTES_MAX = 64 * _MIB
"""Anything else, such as Lance's deletion files: 2 bytes for each of the rows hidden in a fragment, or less."""

_SNAPSHOT_FILES = {
    SnapshotFile.MANIFEST: 16 * _MIB,
    SnapshotFile.DELETES: 1024 * _MIB,
    SnapshotFile.PATCHES: 1024 * _MIB,
}
_KINDS: tuple[tuple[Callable[[str], object], int], ...] = (
    (paths.parse_wal_segment, SEGMENT_ROWS_BYTES_MAX + SEGMENT_TRAILER_BYTES_MAX),
    (paths.parse_index_version, 64 * _MIB),
    (paths.parse_history_page, 64 * _MIB),
    (paths.parse_merge_record, 64 * _MIB),
    (paths.parse_merge_finished, SMALL_BYTES_MAX),
    (paths.parse_contract_version, 16 * _MIB),
    (paths.parse_control_version, SMALL_BYTES_MAX),
    (paths.parse_drain_version, 16 * _MIB),
    (paths.parse_loss_record, SMALL_BYTES_MAX),
    (paths.parse_load_record, 64 * _MIB),
    (paths.parse_key_catalog_version, 256 * _MIB),
    (paths.parse_key_part, 2048 * _MIB),
)


def bytes_max(key: str) -> int:
    """Of the object with this key."""
    snapshot_file = paths.parse_snapshot_file(key)
    if snapshot_file is not None:
        return _SNAPSHOT_FILES[snapshot_file[3]]
    return next((limit for parse, limit in _KINDS if parse(key) is not None), OTHER_BYTES_MAX)


def check_size(key: str, size: int) -> None:
    """``ObjectCorrupt`` for an object that lancewal has not written: it is larger than any of its kind."""
    limit = bytes_max(key)
    if size > limit:
        raise ObjectCorrupt(
            f"{key[:300]} has {size} bytes, more than the {limit} that any object of its kind has: it is not read",
            object=key,
        )
