"""The region states of a whole table as one ``MemWalIndexDetails`` message of Lance's MemWAL index specification.

Guarantees
 1. The message has every generation above each region's trimmed boundary, from its state and its history pages, without a
    gap.  Regions are in the order of their names and partitions, generations ascend.  Regions of earlier topics that the
    table has merged are included.
 2. The message has the specification's fields alone.  A decoder built from the specification meets no unknown field.
 3. The entries of a generation are those that its log has.  Where the log was trimmed, damaged or repaired, every position of
    the generation counts as an entry.  An OPEN generation has none.
 4. Each region is shown as its newest state was at one moment.  Different regions may be read at different moments.  Nothing
    is written.

``last_updated_dataset_version`` is the table version that merged a generation.  Before the merge it is 0, since no table
version has updated the generation yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancewal_core.errors import Corrupt, PlanStale
from lancewal_core.names.ids import LogId, Position, Region
from lancewal_core.names.ids import Sequence as SequenceNumber
from lancewal_core.region.generation_entries import headers_of
from lancewal_core.region.history import read_histories
from lancewal_core.region.state import GenerationRecord, encode_specified
from lancewal_core.wal.entry import EntryHeader
from lancewal_flusher.context import FlusherContext

Positions = Sequence[Position] | range
Of = tuple[Region, GenerationRecord]


def export_memwal(context: FlusherContext) -> bytes:
    """Return the encoded message that the module docstring describes.

    Raises ``StoreInconsistent`` if generations are missing.  Raises ``ObjectCorrupt`` or ``FormatUnknown`` if an object
    cannot be decoded.
    """
    in_force = context.watermarks.newest()[1]
    regions = sorted({*context.contract.regions, *in_force.regions})
    histories = read_histories(context, regions, in_force)
    generations = [(region, record) for region, history in histories.items() for record in history.generations]
    entries = _entries(context, generations)
    return encode_specified(
        (region, [(record, entries[region, record]) for record in history.generations])
        for region, history in histories.items()
    )


def _entries(context: FlusherContext, generations: Sequence[Of]) -> dict[Of, Positions]:
    """Return the first positions of each generation's entries.  Generations in the same segments are read together."""
    together: dict[tuple[LogId, SequenceNumber, SequenceNumber | None], list[Of]] = {}
    for region, record in generations:
        if record.next is not None:
            at = (record.log, record.first_sequence, record.end_sequence)
            together.setdefault(at, []).append((region, record))
    found: dict[Of, Positions] = dict.fromkeys(generations, ())
    for some in context.tasks.map(lambda ended: _in_log(context, ended), list(together.values())):
        found |= some
    return found


def _in_log(context: FlusherContext, ended: Sequence[Of]) -> dict[Of, Positions]:
    answers: Sequence[Sequence[EntryHeader] | PlanStale]
    try:
        answers = headers_of(context, ended)
    except Corrupt as error:
        answers = [PlanStale(str(error))] * len(ended)
    found: dict[Of, Positions] = {}
    for (region, record), answer in zip(ended, answers, strict=True):
        assert record.next is not None, "it has ended"
        every = range(record.first, record.next)
        found[region, record] = every if isinstance(answer, PlanStale) else [header.first for header in answer]
    return found
