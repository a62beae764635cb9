"""The region indexes of a whole table as one ``MemWalIndexDetails``, as Lance's MemWAL index specification has it.

Guarantees
 1. Every generation above each region's trimmed boundary, from its index and its history pages, without a gap; regions in
    the order of their names and partitions, those of earlier topics that the table has merged included, generations
    ascending.
 2. Nothing but the specification's fields: a decoder built from it alone meets no field that it does not know.
 3. A region is what its newest index said at one moment, not all regions at the same one.  Only reads.

``last_updated_dataset_version`` is the table version that merged a generation.  Before, it is 0: what a generation goes
through until then is a version of its region's index, and no version of the table.
"""

from __future__ import annotations

from lancewal_core.region.history import read_histories
from lancewal_core.region.index import encode_specified
from lancewal_flusher.context import FlusherContext


def export_memwal(context: FlusherContext) -> bytes:
    """See the module docstring.  ``StoreInconsistent`` where generations are missing, ``ObjectCorrupt``, ``FormatUnknown``."""
    in_force = context.watermarks.newest()[1]
    regions = sorted({*context.contract.regions, *in_force.regions})
    histories = read_histories(context, regions, in_force)
    return encode_specified((region, history.generations) for region, history in histories.items())
