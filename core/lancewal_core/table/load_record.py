"""The beginning of a bulk load: the generations that were merged when a load of this name began.

Everything that is merged after the beginning is newer than the rows of the load, deletes above all.  The beginning is
stored under the load's name, so that a repeated load still knows which merges came later.  The object is immutable and
kept for ever: if it were deleted, a repeated load would have a later beginning.  Its key is ``paths.load_record``.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from lancewal_core.errors import InvalidInput, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Making, Region
from lancewal_core.store.json_model import StoredVersion, Version1, Word
from lancewal_core.store.json_object import JsonFault, region_named
from lancewal_core.store.object_store import Done, ObjectStore, put_new
from lancewal_core.table.contract import Contract

NAME_MAX = 200


class LoadRecord(StoredVersion):
    """The newest merged generation of each region at the beginning of a load."""

    what = "beginning of a load"
    format: Version1 = 1
    began_at_ms: int
    topic_id: Word
    """Topic id of the contract when the load began.  Generations of another topic cannot be compared with these."""
    merged: dict[str, Annotated[int, Field(ge=0, le=2**63 - 1)]]
    """Region name to number of the newest merged generation.  0, or no such name: none was merged."""

    @classmethod
    def decode(cls, data: bytes, where: str) -> Self:
        """Decode the object as ``StoredVersion`` does.  Raise ``ObjectCorrupt`` also if ``merged`` has a name that is
        not a region's."""
        record = super().decode(data, where)
        try:
            for name in record.merged:
                region_named(name)
        except JsonFault as error:
            raise ObjectCorrupt(
                f"{where}, which records the beginning of a load, is corrupt: {error}", object=where
            ) from error
        return record

    def generation(self, region: Region) -> Generation:
        """Return the region's newest generation that was merged before the load began; 0 if there was none."""
        return Generation(self.merged.get(region.name, 0))


def begin_load(
    store: ObjectStore, name: str, contract: Contract, record: LoadRecord, *, look_only: bool = False
) -> LoadRecord:
    """Return the beginning of the load ``name``: the stored one if the load has begun before, else ``record``, which is
    stored now.  With ``look_only``, nothing is stored.

    Raise ``InvalidInput`` for a name that is not valid, or if the load began with another topic.  Raise
    ``StoreUnavailable`` if the outcome of the put stays unknown.
    """
    if len(name) > NAME_MAX:
        raise InvalidInput(f"the load's name has {len(name)} characters; at most {NAME_MAX} are allowed")
    key = paths.load_record(name, contract.making)
    if look_only:
        found = store.get(key)
    else:
        outcome = put_new(store, key, record.encode(), "run the command again")
        found = None if isinstance(outcome, Done) else outcome.found
    if found is None:
        return record
    began = LoadRecord.decode(found, key)
    if began.topic_id != contract.topic_id:
        raise InvalidInput(
            f"the load {name!r} began while the table's topic had id {began.topic_id!r}; now the topic has id "
            f"{contract.topic_id!r}. Deletes since then are not known. Give the load another name to begin again",
            load=name,
        )
    return began


def read_loads(store: ObjectStore, making: Making | None) -> tuple[str, ...]:
    """Return the names of all loads that ever began."""
    names = (paths.parse_load_record(info.key) for info in store.list(paths.loads_prefix(making)))
    return tuple(sorted(name for name in names if name is not None))
