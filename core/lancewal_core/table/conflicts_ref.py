"""Reference to the object with the keys in conflict at a table version (``keys.conflicts``).

The merge that wrote the object names it in its commit, with size and sha256.  Every later commit names it too, until
another object replaces it.  The reference is part of ``Watermarks``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from lancewal_core.errors import ObjectCorrupt, RegionConflict
from lancewal_core.names import paths
from lancewal_core.names.ids import Region
from lancewal_core.store.json_object import JsonFault, JsonObject, region_named
from lancewal_core.store.object_kinds import CONFLICTS_BYTES_MAX

PROPERTY_CONFLICTS = "lancewal.conflicts"
PROPERTY_SETTLED = "lancewal.settled"
"""Name of the property that marks a commit as a person's decision about keys in conflict."""


@dataclass(frozen=True, slots=True)
class ConflictsRef:
    """Reference to the object with the keys in conflict.  ``merge`` is the uuid of the merge that wrote it; ``size``
    is in bytes.

    ``keys`` is the number of keys that wait for a person's decision.  ``stopped`` are the regions of which ingest takes
    no further records until a person has decided."""

    merge: str
    size: int
    sha256: str
    keys: int
    stopped: tuple[Region, ...] = ()

    @property
    def key(self) -> str:
        return paths.conflicts_object(self.merge)

    def members(self) -> dict[str, object]:
        """Return the reference as a JSON object's members."""
        found: dict[str, object] = {"merge": self.merge, "size": self.size, "sha256": self.sha256, "keys": self.keys}
        return {**found, "stopped": [region.name for region in self.stopped]} if self.stopped else found

    def why_stopped(self, region: Region) -> RegionConflict | None:
        """Return the error that says why ingest takes no further records of the region; None if it takes them."""
        if region not in self.stopped:
            return None
        return RegionConflict(
            f"topic {region.topic} partition {region.partition} takes no further records. {self.keys} primary keys "
            "came through several partitions and wait for a decision, many of them through this one. Correct the "
            "producers. Then decide: `lancewal conflict list`, `lancewal conflict settle`",
            **region.place,
            keys=self.keys,
        )

    def to_json(self) -> str:
        return json.dumps(self.members(), separators=(",", ":"))


def decode_ref(text: str, where: str) -> ConflictsRef:
    """Return the reference that ``to_json`` gave.  Raise ``ObjectCorrupt`` for another text; it names ``where``, the
    origin of the text."""
    try:
        return parse_ref(JsonObject.parse(text))
    except JsonFault as error:
        raise ObjectCorrupt(
            f"{where}: property {PROPERTY_CONFLICTS!r} cannot be read: {error}", object=where
        ) from error


def parse_ref(content: JsonObject) -> ConflictsRef:
    """Return the reference in a JSON object.  Raise ``JsonFault`` if no object can have its values."""
    merge, sha256 = content.text("merge"), content.text("sha256")
    if not paths.is_conflicts_name(merge):
        raise JsonFault("its 'merge' is not the uuid of a merge")
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise JsonFault("its 'sha256' is not a SHA-256 digest")
    size = content.whole("size", high=CONFLICTS_BYTES_MAX)
    stopped = content.values("stopped") if "stopped" in content.members else []
    return ConflictsRef(merge, size, sha256, content.whole("keys"), tuple(region_named(str(name)) for name in stopped))
