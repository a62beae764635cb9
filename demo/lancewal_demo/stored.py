"""Count the objects that a run has left in the object store.

The demonstration is shorter than the history window, so nothing was trimmed yet, and every object that was written still
exists.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from lancewal_core.names import paths
from lancewal_core.region.flushes.manifest import decode_flush


@dataclass(frozen=True, slots=True)
class Stored:
    """Numbers of objects, and the bytes of all objects by purpose."""

    segments: int
    generations: int
    merges: int
    table_version: int
    wal_bytes: int
    data_bytes: int
    other_bytes: int

    @property
    def nbytes(self) -> int:
        return self.wal_bytes + self.data_bytes + self.other_bytes


def look_at(table: Path) -> Stored:
    """Count the objects in the table's folder."""
    import lance

    counts: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for file in table.rglob("*"):
        if not file.is_file():
            continue
        key = file.relative_to(table).as_posix()
        size = file.stat().st_size
        if paths.parse_wal_segment(key) is not None:
            counts["segment"] += 1
            nbytes["wal"] += size
        elif key.startswith(paths.DATA):
            nbytes["data"] += size
        else:
            nbytes["other"] += size
        flush = paths.parse_flush_file(key)
        if flush is not None and flush[1] is paths.FlushFile.MANIFEST:
            counts["generation"] += len(decode_flush(file.read_bytes(), key).parts)
        if paths.parse_merge_record(key) is not None and json.loads(file.read_text())["kind"] == "merge":
            counts["merge"] += 1
    return Stored(
        segments=counts["segment"],
        generations=counts["generation"],
        merges=counts["merge"],
        table_version=int(lance.dataset(str(table)).version),
        wal_bytes=nbytes["wal"],
        data_bytes=nbytes["data"],
        other_bytes=nbytes["other"],
    )
