"""Find flushes that no generation needs any more.

Guarantees
 1. A flush stays, with all its parts, if a generation above the trimmed boundary names it.
 2. Any other flush is free once the generation of each of its parts is trimmed, or names another flush.  It stays
    while the generation of a part is SEALED, because a swap may still record this flush.  It also stays while a
    part's region is unknown: the region's state is damaged, or the contract does not name the region.
 3. A flush's folder without a manifest, or with a damaged one, is free once all its objects are seven days old.  It
    stays while the state of any region is damaged, because that state may name it.  A writer that was frozen for so
    long may still record such a flush in a region state.  The flush is then rebuilt from the log, which has all its
    rows until the merge.

Manifests never change.  So the manifest of a flush that no generation names is read only once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from enum import Enum

from lancewal_core.errors import Corrupt, FormatUnknown
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Region
from lancewal_core.names.paths import FlushFile
from lancewal_core.region.flushes.manifest import read_flush
from lancewal_core.region.history import History, SoundHistories
from lancewal_core.store.object_store import ObjectInfo
from lancewal_flusher.context import FlusherContext

UNFINISHED_KEPT_MS = 7 * 24 * 3600 * 1000
"""Milliseconds for which flushes without a readable manifest are kept.  Lance's clean-up keeps data files that no
version names for the same time."""

Parts = Seq[tuple[Region, Generation]]


class NoParts(Enum):
    """Reason why it is unknown which generations a flush belongs to."""

    UNFINISHED = "it has no manifest, or a damaged one"
    LATER = "its manifest has a later format"


@dataclass(slots=True)
class KnownFlushes:
    """Cache of the parts of flushes that no generation names, by the key of the manifest."""

    parts: dict[str, Parts | NoParts] = field(default_factory=dict)

    def region_outside(self, key: str, regions: Collection[Region]) -> Region | None:
        """Return a region outside ``regions`` that has a part of the flush to which the object ``key`` belongs.  None
        if there is no such region, or if the parts are unknown.
        """
        parsed = paths.parse_flush_file(key)
        parts = None if parsed is None else self.parts.get(paths.flush_file(parsed[0], FlushFile.MANIFEST))
        if parts is None or isinstance(parts, NoParts):
            return None
        return next((region for region, _ in parts if region not in regions), None)


def free_flushes(
    context: FlusherContext,
    listed: Seq[ObjectInfo],
    kept_by: SoundHistories,
    known: KnownFlushes,
    now: int,
) -> set[str]:
    """Return the keys of ``listed`` objects that are free.  ``kept_by``: the histories of all regions of the contract."""
    histories = kept_by.of
    folders: dict[str, list[ObjectInfo]] = {}
    for info in listed:
        parsed = paths.parse_flush_file(info.key)
        if parsed is not None:
            folders.setdefault(paths.flush_file(parsed[0], FlushFile.MANIFEST), []).append(info)
    named = {
        (region, record.generation): record.flush
        for region, history in histories.items()
        for record in history.generations
        if record.flush is not None
    }
    for key in set(named.values()):
        folders.pop(key, None)
    _look_into(context, [info.key for infos in folders.values() for info in infos if info.key in folders], known)
    free: set[str] = set()
    for key, infos in folders.items():
        match known.parts.get(key, NoParts.UNFINISHED):
            case NoParts.LATER:
                goes = False
            case NoParts.UNFINISHED:
                goes = not kept_by.damaged and all(now - i.modified_ms >= UNFINISHED_KEPT_MS for i in infos)
            case parts:
                goes = all(_over(*part, histories, named) for part in parts)
        if goes:
            free |= {info.key for info in infos}
    return free


def _look_into(context: FlusherContext, manifests: Seq[str], known: KnownFlushes) -> None:
    """Read those of the manifests that are not cached yet, and remove all other manifests from the cache."""
    unknown = [key for key in manifests if key not in known.parts]
    read = context.tasks.map(lambda key: _parts(context, key), unknown) if unknown else []
    found = {**known.parts, **dict(zip(unknown, read, strict=True))}
    known.parts = {key: found[key] for key in manifests}


def _parts(context: FlusherContext, key: str) -> Parts | NoParts:
    try:
        return [(part.region, part.generation) for part in read_flush(context.store, key).parts]
    except FormatUnknown:
        return NoParts.LATER
    except Corrupt:
        return NoParts.UNFINISHED


def _over(
    region: Region,
    generation: Generation,
    histories: Mapping[Region, History],
    named: Mapping[tuple[Region, Generation], str],
) -> bool:
    """Whether the generation will never name the flush that is examined: the generation is trimmed, or names another
    flush.
    """
    history = histories.get(region)
    return history is not None and (generation <= history.state.trimmed_generation or (region, generation) in named)
