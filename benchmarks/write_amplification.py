"""Count the bytes that 50 rounds of 10 k random updates write into a table of 5 M rows, per byte of the upserted Arrow
rows.

The sizes of all files that appear in the table's folder are counted by kind, including files that a later round
removes.  The table's own bytes are its data files, its deletion vectors and the runs of the key index.  Lance's
manifests and transactions, the WAL and lancewal's other objects are counted separately.  Compaction runs after each
merge, as in the service, and its bytes are counted separately too.  ``merge_insert`` of the same rows into an equal
table is the comparison.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from benchmarks.merge_runs import Pair
from benchmarks.workplace import workplace
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits

ROWS = 5_000_000
ROUNDS = 50
COUNT = 10_000
COMPACTION = "compaction"
TABLE = ("data", "deletions", "key_index")
_KINDS = {
    "data": "data",
    "_deletions": "deletions",
    "_lancewal/keys": "key_index",
    "_versions": "manifests",
    "_transactions": "transactions",
    "_lancewal/wal": "wal",
}
"""Start of a path in the table's folder -> kind; all else is ``other``."""


def run() -> dict[str, float]:
    with workplace(free_gib=4) as place:
        pair = Pair.of(place.base(ROWS), place.folder, 4)
        # The base's fragments are small: bundling and indexing them is nothing that upserts bring about.
        pair.ours.compact_all()
        pair.runs(1_000, 1)
        ours, peer = Written(pair.ours.path), Written(pair.peer.path)
        upserted = 0
        for _ in range(ROUNDS):
            rows = pair.upserts.batch(COUNT, updated_share=1.0)
            upserted += rows.nbytes
            pair.ours.seal(rows)
            pair.ours.flush()
            ours.look()
            pair.ours.merge()
            ours.look()
            pair.ours.compact(CompactionLimits())
            ours.look(COMPACTION)
            pair.peer.merge(rows)
            peer.look()
        pair.check()
        pair.ours.close()
        result: dict[str, float] = {"rounds": ROUNDS, "upserted_mib": upserted / 2**20}
        result["table_ratio"] = ours.table / upserted
        result |= {f"{kind}_ratio": ours.by_kind[kind] / upserted for kind in (*_KINDS.values(), COMPACTION, "other")}
        result["everything_ratio"] = ours.by_kind.total() / upserted
        result["everything_but_wal_ratio"] = (ours.by_kind.total() - ours.by_kind["wal"]) / upserted
        result["merge_insert_table_ratio"] = peer.table / upserted
        result["merge_insert_everything_ratio"] = peer.by_kind.total() / upserted
        return result | {"correct": 1}


class Written:
    """Bytes written into a folder since this was made, as ``look`` finds them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.by_kind: Counter[str] = Counter()
        self._seen = set(self._files())

    @property
    def table(self) -> int:
        return sum(self.by_kind[kind] for kind in TABLE)

    def look(self, kind: str | None = None) -> None:
        """Count the files that are new since the last look, all as this kind, or each as its own.  A file that came and went
        in between is not seen."""
        for name, size in self._files().items():
            if name not in self._seen:
                self._seen.add(name)
                self.by_kind[kind or _kind(name)] += size

    def _files(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = Path(folder, name)
                found[path.relative_to(self._folder).as_posix()] = path.stat().st_size
        return found


def _kind(name: str) -> str:
    return next((kind for start, kind in _KINDS.items() if name.startswith(f"{start}/")), "other")
