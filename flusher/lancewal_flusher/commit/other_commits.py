"""Send lancewal's commits other than merges.  Each has a property with a random id, by which the commit is found if
Lance's reply is lost.

Follow-ups and parts of loads list the sentinel, so that they conflict with merges.  Expiry and compaction list only
what they change.  None of these commits carries watermarks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lancewal_core.names.ids import TableVersion
from lancewal_core.process.failpoints import point
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.watermarks import PROPERTY_EXPIRY, PROPERTY_FOLLOWUP, PROPERTY_LOAD, InForce
from lancewal_flusher.commit.send import Changed, Landed, Refused, commit_of, fenced, send
from lancewal_flusher.context import FlusherContext

PROPERTY_COMPACTION = "lancewal.compaction"
_FOLLOWUP_ID = "lancewal.followup_id"
_LOAD_ID = "lancewal.load_id"
"""Property with the random id of one attempt to commit a part of a load.  If the reply is lost, the commit is found
by this id."""


def send_follow_up(
    context: FlusherContext,
    current: PinnedTable,
    in_force: InForce,
    changed: Changed,
    new: Sequence[str],
    origins: Mapping[str, str],
) -> TableVersion | Refused:
    """Send the follow-up of the newest merge.  ``new``: the fragments that it adds, as JSON.  ``origins``: commit
    properties that say through which regions the rows of ``new`` came.
    """
    properties = {
        PROPERTY_FOLLOWUP: in_force.merge or "",
        _FOLLOWUP_ID: context.new_id(),
        **origins,
    }
    commit = fenced(current, new, changed, properties)
    with point("followup.commit", version=in_force.version):
        return _version(send(context, commit, _FOLLOWUP_ID))


def send_load(
    context: FlusherContext, pinned: PinnedTable, load: str, new: Sequence[str], changed: Changed
) -> TableVersion | Refused:
    """Send a part of a bulk load.  ``load``: the load's id, in the property ``lancewal.load``.  ``new``: fragments,
    as JSON.
    """
    commit = fenced(pinned, new, changed, {PROPERTY_LOAD: load, _LOAD_ID: context.new_id()})
    return _version(send(context, commit, _LOAD_ID))


def send_expiry(context: FlusherContext, pinned: PinnedTable, changed: Changed) -> TableVersion | Refused:
    """Send a commit that hides expired rows."""
    return _version(send(context, commit_of(pinned, (), changed, {PROPERTY_EXPIRY: context.new_id()}), PROPERTY_EXPIRY))


def send_compaction(
    context: FlusherContext, pinned: PinnedTable, fragment_ids: Collection[int], written: Sequence[str]
) -> TableVersion | Refused:
    """Send a commit that replaces the fragments with these ids by the fragments ``written``, given as JSON."""
    commit = commit_of(pinned, written, {}, {PROPERTY_COMPACTION: context.new_id()})
    rewritten = tuple(pinned.fragment_json(number) for number in sorted(fragment_ids))
    return _version(send(context, replace(commit, rewritten=rewritten), PROPERTY_COMPACTION))


def _version(outcome: Landed | Refused) -> TableVersion | Refused:
    return outcome if isinstance(outcome, Refused) else outcome.version
