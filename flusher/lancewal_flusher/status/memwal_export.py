"""The region indexes of a whole table as one ``MemWalIndexDetails``, as Lance's MemWAL index specification has it.

Guarantees
 1. Every generation above each region's trimmed boundary, from its index and its history pages, without a gap; regions in
    the order of their names and partitions, those of earlier topics that the table has merged included, generations
    ascending.
 2. Nothing but the specification's fields: a decoder built from it alone meets no field that it does not know.
 3. The entries of a generation are those that its flush names, or, before it has one or where that cannot be read, those that
    its log shows.
 4. A region is what its newest index said at one moment, not all regions at the same one.  Only reads.

``last_updated_dataset_version`` is the table version that merged a generation.  Before, it is 0: what a generation goes
through until then is a version of its region's index, and no version of the table.
"""

from __future__ import annotations

from contextlib import suppress

from lancewal_core.errors import Corrupt
from lancewal_core.ids import Region
from lancewal_core.region.flushes.manifest import Flush
from lancewal_core.region.flushes.u64_segment import U64Segment
from lancewal_core.region.generation_entries import headers_of
from lancewal_core.region.history import read_histories
from lancewal_core.region.index import GenerationRecord, encode_specified
from lancewal_core.region.snapshot import read_flushes
from lancewal_flusher.context import FlusherContext


def export_memwal(context: FlusherContext) -> bytes:
    """See the module docstring.  ``StoreInconsistent`` where generations are missing, ``ObjectCorrupt``, ``FormatUnknown``;
    ``PlanStale`` where neither flush nor log tells a generation's entries: it was trimmed meanwhile, or they are lost."""
    in_force = context.watermarks.newest()[1]
    regions = sorted({*context.contract.regions, *in_force.regions})
    histories = read_histories(context, regions, in_force)
    records = [(region, record) for region, history in histories.items() for record in history.generations]
    flushes = read_flushes(context.store, context.tasks, {r.snapshot for _, r in records if r.snapshot is not None})
    found = context.tasks.map(lambda one: _entries(context, *one, flushes.get(one[1].snapshot or "")), records)
    entries = dict(zip(records, found, strict=True))
    return encode_specified(
        (region, [(record, entries[region, record]) for record in history.generations])
        for region, history in histories.items()
    )


def _entries(
    context: FlusherContext, region: Region, record: GenerationRecord, flush: Flush | Corrupt | None
) -> U64Segment:
    """Ids of a generation's entries; empty while OPEN."""
    if isinstance(flush, Flush):
        with suppress(Corrupt):
            return flush.snapshot(region, record.generation).wal_entries
    if record.next is None:
        return U64Segment.of(())
    return U64Segment.of(entry.first for entry in headers_of(context, region, record))
