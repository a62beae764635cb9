"""Read the state of a table for a round: the newest version, its watermarks, and the states of all regions.  They are
read at the same time.

Guarantee: the region states are not older than the watermarks, so a region state that ends below its watermark was
lost (``history.check_reaches``).  Generations that a merge has put into the table were FLUSHED before its commit.  So
states that were read after this process knew of a merge are not older than the merge's watermarks.  If the newest
version has the watermarks of a later merge, the states are read once more.

An error of reading the region states is raised only when the states are used, because a merge can be finished without
them.  A damaged state affects only its region: the states of all other regions are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lancewal_core.errors import Corrupt, LancewalError, or_error, or_raised
from lancewal_core.names.ids import Region
from lancewal_core.process.tasks import together
from lancewal_core.region.state import RegionState
from lancewal_core.region.states import Sound
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.commit.widened import check_version
from lancewal_flusher.context import FlusherContext


@dataclass(frozen=True, slots=True)
class Look:
    """State of a table, as ``look`` read it.  ``pinned``: the version that was the newest; it belongs to the
    contract's table.  ``in_force``: its watermarks.
    """

    pinned: PinnedTable
    in_force: InForce
    found: Sound | LancewalError
    """The region states, or the error of reading them."""

    @property
    def states(self) -> Mapping[Region, RegionState]:
        """States of the regions that are not damaged."""
        return or_raised(self.found).states

    @property
    def damaged(self) -> Mapping[Region, Corrupt]:
        return or_raised(self.found).damaged


def look(context: FlusherContext, check: Callable[[FlusherContext, PinnedTable], None] = check_version) -> Look:
    """Read the newest version, its watermarks and all region states.  ``check`` checks the version; its errors are
    raised.
    """
    known = context.watermarks.newest_set_by
    found, (pinned, in_force) = together(
        context.tasks,
        lambda: or_error(context.read_sound_states),
        lambda: context.watermarks.newest(lambda pinned: check(context, pinned)),
    )
    if in_force.version > known:
        found = or_error(context.read_sound_states)
    return Look(pinned, in_force, found)
