"""Flushes that no generation needs any more.

Guarantees
 1. What a generation that is kept names stays, and all that its flush has besides.
 2. Of any other flush each part counts: it goes once the generation of every part is trimmed, or names another flush.  A part
    keeps it whose generation is SEALED, since the attempt may be the one that wins, or that nothing is known of: its region's
    state is damaged, or the contract does not name the region.
 3. A folder without a manifest goes once all in it is seven days old, as one whose manifest is damaged; but beside a region
    whose state is damaged, which may name it.  A writer that froze for so long may still swap such a flush in; then it is
    made anew from the log, which has all of it until the merge.

Manifests never change: of a flush that nobody names it is read once, for as long as it is listed.
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
"""Time that unfinished flushes are kept: as long as Lance leaves data files alone that no version names."""

Parts = Seq[tuple[Region, Generation]]


class NoParts(Enum):
    """Why the parts of a flush are not known."""

    UNFINISHED = "it has no manifest, or a damaged one"
    LATER = "its manifest has a later format"


@dataclass(slots=True)
class KnownFlushes:
    """Manifests of flushes that no generation names, and what they say."""

    parts: dict[str, Parts | NoParts] = field(default_factory=dict)

    def region_outside(self, key: str, regions: Collection[Region]) -> Region | None:
        """Return a region that has a part of the object's flush and is none of these."""
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
    """Objects of ``listed`` that are free; ``kept_by``: of all regions that the contract names."""
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
    """Know these, and forget others."""
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
    """Whether the generation will never name this flush, which it does not now."""
    history = histories.get(region)
    return history is not None and (generation <= history.index.trimmed_generation or (region, generation) in named)
