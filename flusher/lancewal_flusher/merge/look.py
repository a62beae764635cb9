"""Look at the table for a round: the newest version, its watermarks, and all indexes, asked for at the same time.

Guarantee: the indexes are not older than the watermarks, so an index that ends below them is lost
(``history.check_reaches``).  Generations that a merge has put into the table were FLUSHED before its commit.  Indexes
asked for after a merge was known to have landed are therefore not older than its watermarks.  If the version found
has others, the indexes are asked for once more, after it.

Errors of the indexes are raised where the indexes are needed: a merge is finished without them.  A damaged index
concerns its region alone.  The others are read, and nothing is known of that region.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lancewal_core.errors import Corrupt, LancewalError, or_error, or_raised
from lancewal_core.names.ids import Region
from lancewal_core.process.tasks import together
from lancewal_core.region.state import RegionState
from lancewal_core.region.states import Sound
from lancewal_core.table.checks import check_table
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.context import FlusherContext


@dataclass(frozen=True, slots=True)
class Look:
    """``pinned`` was the newest version, and is the contract's table."""

    pinned: PinnedTable
    in_force: InForce
    found: Sound | LancewalError
    """The indexes, or why they could not be read."""

    @property
    def indexes(self) -> Mapping[Region, RegionState]:
        """States of the regions that are not ``damaged``."""
        return or_raised(self.found).indexes

    @property
    def damaged(self) -> Mapping[Region, Corrupt]:
        return or_raised(self.found).damaged


def look(context: FlusherContext) -> Look:
    """See the module docstring."""
    known = context.watermarks.newest_set_by
    found, (pinned, in_force) = together(
        context.tasks,
        lambda: or_error(context.read_sound_indexes),
        lambda: context.watermarks.newest(lambda pinned: check_table(pinned, context.contract)),
    )
    if in_force.version > known:
        found = or_error(context.read_sound_indexes)
    return Look(pinned, in_force, found)
