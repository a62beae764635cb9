"""Keys in conflict in a read: which records are left out of the delta, and how the read reports this.

The rules are for tables whose rows do not tell their partition (``keys.origin``).  A key in conflict is *in force* at
a table version that records its conflict.
 1. Records that wait for a person's decision at the read's table version are neither in the table nor in a delta.
 2. Unmerged records of a key in force are read only if they came through the partition that owns the key.
 3. If unmerged records of a key came through several regions, and the key is not in force yet, the read shows the row
    of the table version.

All tasks of a Spark job leave out the same records, since the plan alone determines them.

A read that has left something out reports how much, in the schema's metadata under ``lancewal.conflicts`` and in the
log.  Keys are counted, never named.  However many they are, all other keys are read.  With ``on_conflict="fail"``
nothing is left out: the read raises ``RegionConflict`` instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from lancewal_core.errors import InvalidInput, RegionConflict
from lancewal_core.keys.conflicts import ConflictKeys
from lancewal_core.keys.origin import Meeting, conflict
from lancewal_core.names.ids import Region
from lancewal_core.rows.fold import Folded, divide, key_codes, side_by_side
from lancewal_core.rows.key_set import KeySet, distinct
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.json_object import JsonFault, JsonObject
from lancewal_core.table.contract import Contract
from lancewal_reader.event_table import ReaderEvents
from lancewal_reader.plan.strong import ReadPlan
from lancewal_reader.unmerged.loaded import Loaded

METADATA_KEY = b"lancewal.conflicts"
OnConflict = Literal["leave-out", "fail"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Keys in conflict that a read leaves out.

    ``waiting``: number of keys that wait for a decision at the version read.  ``unmerged``: number of keys whose
    unmerged records were left out.  ``partitions``: the partitions of these records.
    """

    waiting: int = 0
    unmerged: int = 0
    partitions: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.waiting or self.unmerged)

    def warn(self, topic: str) -> None:
        """Log an event if any key was left out."""
        if self:
            ReaderEvents().keys_left_out(
                topic=topic,
                waiting_keys=self.waiting,
                unmerged_keys=self.unmerged or None,
                partitions=list(self.partitions) or None,
            )


def with_left_out(schema: pa.Schema, left_out: LeftOut) -> pa.Schema:
    """Return the schema with ``left_out`` in its metadata, or unchanged if nothing was left out."""
    if not left_out:
        return schema
    return schema.with_metadata({**(schema.metadata or {}), METADATA_KEY: json.dumps(asdict(left_out)).encode()})


def left_out_of(schema: pa.Schema) -> LeftOut:
    """Return what a read left out, from the schema of its result.  Raises ``InvalidInput`` if the metadata is
    malformed.
    """
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        return LeftOut()
    try:
        said = JsonObject.parse(text)
        return LeftOut(said.whole("waiting"), said.whole("unmerged"), tuple(said.wholes("partitions")))
    except JsonFault as error:
        raise InvalidInput(
            f"metadata lancewal.conflicts of this schema are malformed: {error}. Give the schema of a result as lancewal "
            "returned it"
        ) from error


def leave_out(
    contract: Contract,
    in_force: ConflictKeys,
    folds: Mapping[Region, Folded],
    schema: RowSchema,
    met_elsewhere: pa.Table | None,
    on_conflict: OnConflict,
) -> Loaded:
    """Combine the folds of regions, without unmerged records of keys in conflict (rules 2 and 3 of the module
    docstring).

    ``in_force``: the keys in conflict that the table version records.  ``met_elsewhere``: the keys that several
    regions have; None: they are found among ``folds``, which has all regions.  Raises ``RegionConflict`` if keys are
    left out and ``on_conflict`` is ``fail``.
    """
    gone: list[pa.Table] = []
    partitions: set[int] = set()
    kept: list[Folded] = []
    for region, fold in folds.items():
        keys = fold.keys(schema).combine_chunks()
        mask = in_force.left_out(region, keys)
        if mask.any():
            gone.append(keys.filter(pa.array(mask)).combine_chunks())
            partitions.add(region.partition)
            fold = divide(fold, KeySet(gone[-1]))[1]
        kept.append(fold)
    met = _met(kept, schema) if met_elsewhere is None else met_elsewhere
    if met.num_rows:
        wanted = KeySet(met)
        for at, (region, fold) in enumerate(zip(folds, kept, strict=True)):
            out, kept[at] = divide(fold, wanted)
            if len(out.keys(schema)):
                partitions.add(region.partition)
        gone.append(met)
    unmerged = distinct(pa.concat_tables([schema.key.empty_table(), *gone]), schema).num_rows
    if unmerged and on_conflict == "fail":
        first, *more = sorted(partitions)
        raise conflict(
            contract.topic,
            Meeting(unmerged, (first, more[0] if more else first)),
            "is not merged yet",
            "The flusher sets aside what conflicts, and a person decides: `lancewal conflict list`. Until "
            'then the merged table can be read (consistency="eventual")',
        )
    return Loaded(side_by_side(kept, schema), schema, met, unmerged, tuple(sorted(partitions)))


def left_out_of_plan(contract: Contract, plan: ReadPlan, on_conflict: OnConflict) -> LeftOut:
    """Return how many keys in conflict wait for a decision at the plan's version.  For a snapshot, return what it
    left out.

    Raises ``RegionConflict`` if there is such a key, and ``on_conflict`` is ``fail``.
    """
    ref, on = plan.in_force.conflicts, plan.branch
    waiting = 0 if ref is None else ref.keys
    found = LeftOut(waiting) if on is None else LeftOut(on.waiting, on.unmerged, on.partitions)
    if found and on_conflict == "fail":
        told = f"{waiting} primary keys came through two partitions and wait for a decision: `lancewal conflict list` shows "
        told += "them, `lancewal conflict settle` decides"
        if on is not None:
            told = f"snapshot {on.name} lacks records of primary keys that had come through two partitions when it was made"
        raise RegionConflict(
            f"topic {contract.topic}: {told}", topic=contract.topic, keys=found.waiting + found.unmerged
        )
    return found


def _met(folds: Sequence[Folded], schema: RowSchema) -> pa.Table:
    """Return the keys that are in several folds, each once."""
    keys = pa.concat_tables([schema.key.empty_table(), *(fold.keys(schema) for fold in folds)]).combine_chunks()
    codes = key_codes(keys)
    if int(codes.max(initial=-1)) + 1 == len(codes):
        return schema.key.empty_table()
    return distinct(keys.filter(pa.array(np.bincount(codes)[codes] > 1)), schema)
