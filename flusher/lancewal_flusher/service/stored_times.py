"""When generations came to be where they are, from the store's own times: what an age needs that survives a restart.

No stored state has a time of a generation that is not merged yet, but every object has one, that of its PUT:
 1. A generation that is flushed has waited for its merge since its flush was stored.
 2. One that is not has waited since its last WAL segment was, or a segment of another partition behind that one.
 3. The same time of a merged generation says what the table has: all that was durable then.

A listing may be stale; what it does not show is not known, and asked for again.  What is known stays.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from lancewal_core import paths
from lancewal_core.errors import StoreUnavailable
from lancewal_core.ids import Generation, Region, Sequence
from lancewal_core.region.index import GenerationRecord, State
from lancewal_core.store.object_store import ObjectStore


@dataclass(slots=True)
class StoredTimes:
    """Remembers what it has found of the generations that are asked for again."""

    _known: dict[tuple[Region, Generation, bool], int] = field(default_factory=dict)

    def waits_since_ms(self, store: ObjectStore, region: Region, record: GenerationRecord) -> int | None:
        """1 and 2, of a generation that is not merged; None where that is not known."""
        if record.state is State.SEALED:
            return self.logged_ms(store, region, record)
        if record.snapshot is None:
            return None
        folder = record.snapshot.rpartition("/")[0] + "/"
        return self._ask((region, record.generation, True), store, folder, record.snapshot)

    def logged_ms(self, store: ObjectStore, region: Region, record: GenerationRecord) -> int | None:
        """3: when the last WAL segment that may hold rows of the generation was stored."""
        end = record.end_sequence
        if end is None or end <= record.first_sequence:
            return None
        last = paths.wal_segment(record.log, Sequence(end - 1))
        after = paths.wal_segment(record.log, Sequence(end - 2)) if end >= 2 else None
        return self._ask((region, record.generation, False), store, paths.log_prefix(record.log), last, after)

    def keep(self, generations: Collection[tuple[Region, Generation]]) -> None:
        """Forget all others."""
        self._known = {key: at for key, at in self._known.items() if key[:2] in generations}

    def _ask(
        self,
        name: tuple[Region, Generation, bool],
        store: ObjectStore,
        folder: str,
        wanted: str,
        after: str | None = None,
    ) -> int | None:
        if name not in self._known:
            try:
                listed = store.list(folder, limit=None if after is None else 1, after=after)
            except StoreUnavailable:
                return None
            for info in listed:
                if info.key == wanted:
                    self._known[name] = info.modified_ms
        return self._known.get(name)
