"""Widen columns, between merge rounds: write their values again with a wider type, and commit the files.

The contract asks for a widening (``Column.widening``).  A turn does a bounded part of the work, and the caller runs
it between two merges of its own process.

Guarantees
 1. The commit lands only on the very version that it was computed from, so no row is left without its value.  A merge
    that was planned before it, also by a sleeping flusher, is refused.
 2. A file that was written in an earlier turn counts only while its fragment has the same data files.  Rows that were
    deleted since stay deleted.
 3. A process may die at any point.  Either its files are then part of no version, or the commit has landed, and
    ``commit.widened`` completes the widening.

Steps of ``widen_next``
 1. Pin the newest version.  Wait while the merge in force there is unfinished.
 2. Stop if an index is over one of the columns.  If a new field id is not higher than all ids in the version, write a
    contract that asks for higher ids.  Another program, or a change of columns, may have used the id since.  Lance
    never accepts a lower id.
 3. Write the columns of fragments that have no file yet, until the time of the turn is over.
 4. Send ONE commit with the files of all fragments.  If it is refused, the next turn writes what is missing.
 5. Swap in the contract with the wider types, and mark the table with that change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import pyarrow as pa

from lancewal_core.errors import VersionGone
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks
from lancewal_core.rows.carry import Tree, tree_of, with_leaves
from lancewal_core.rows.column_types import parse_type
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.checks import in_version
from lancewal_core.table.columns.versions import ids_in_use, version_trees, widened, write_widened
from lancewal_core.table.contract import Column, Contract
from lancewal_core.table.presence import check_present
from lancewal_core.table.protocol import (
    CommitLost,
    Committed,
    Conflicted,
    PinnedTable,
    StoredTable,
    fragment_bytes,
)
from lancewal_flusher.commit.send import Refused, Why, checkpoint, newest_finished
from lancewal_flusher.commit.widened import swap_columns, take_wider
from lancewal_flusher.context import FlusherContext

TURN_S = 1.0
"""Seconds after which a turn begins no further files.  Merges wait for the turn, and for the commit."""
_AT_ONCE = 4
"""Number of fragments whose files are written at the same time."""
PROPERTY_WIDENING = "lancewal.widening"
"""Property of a widening's commit: the names of the widened columns, as a JSON list."""


@dataclass(frozen=True, slots=True)
class WideningDone:
    """A widening that was committed, in ``version``."""

    version: TableVersion
    columns: tuple[str, ...]
    fragments: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class WideningBegun:
    """A widening that has begun.  ``left``: number of fragments that still need a file with the wider type."""

    columns: tuple[str, ...]
    left: int


@dataclass(frozen=True, slots=True)
class WideningHeld:
    """A widening that cannot go on until a person has acted."""

    columns: tuple[str, ...]
    reason: str


WideningResult = WideningDone | WideningBegun | WideningHeld | Refused | None
"""Result of a turn of widening; None: the contract asks for no widening."""


@dataclass(slots=True)
class WideningState:
    """Files that were written in earlier turns.  Losing this state costs only time."""

    asked: tuple[Column, ...] = ()
    written: dict[int, tuple[Any, str]] = field(default_factory=dict)
    """By fragment id: the fragment's data files when its file was written, and its JSON with the new file."""


def widen_next(context: FlusherContext, state: WideningState, turn_s: float = TURN_S) -> WideningResult:
    """Run one turn of a widening.  Raises the errors of ``check_fit``, and ``RewriteFailed`` if the wider type lacks a
    value.
    """
    asked = tuple(column for column in context.contract.columns if column.widening is not None)
    if not asked:
        return None
    if asked != state.asked:
        state.asked, state.written = asked, {}
    # Step 1
    pinned = newest_finished(context)
    if isinstance(pinned, Refused):
        return pinned
    landed = [column for column in asked if in_version(pinned, column) is not column]
    if landed:
        take_wider(context, pinned)
        return WideningDone(pinned.version, tuple(column.name for column in landed), 0, 0)
    # Step 2
    names = {own[0]: name for name, own in pinned.field_ids.items()}
    here = {names[column.field_ids[0]]: column for column in asked}
    shown = tuple(column.name for column in asked)
    over = sorted(index.name for index in pinned.indexes() if not index.columns.isdisjoint(here))
    if over:
        return WideningHeld(
            shown, f"index {over[0]} is over one of the columns {list(shown)}: drop the index, and build it again later"
        )
    highest = max(ids_in_use(pinned))
    if any(min(_new_ids(column)) <= highest for column in asked):
        swap_columns(context, lambda newest: _renumbered(newest, highest), done=False)
        return WideningBegun(shown, len(pinned.fragments()))
    # Step 3
    wide = [_wider(tree, here[tree.name]) for tree in version_trees(pinned) if tree.name in here]
    try:
        left = _write((context.tasks, context.clock), state, pinned, wide, turn_s)
        if left:
            return WideningBegun(shown, left)
        # Step 4
        checkpoint(context, pinned.version)
        sent = _commit((context.store, context.contract), context.table, state, pinned, wide)
    except VersionGone as error:
        return Refused(f"files of table version {pinned.version} are gone: {error}", Why.CLEANED_UP)
    if isinstance(sent, WideningDone):
        # Step 5
        take_wider(context, context.table.at(sent.version))
        state.asked, state.written = (), {}
        return replace(sent, columns=shown)
    return sent


def _write(
    means: tuple[Tasks, Clock],
    state: WideningState,
    pinned: PinnedTable,
    wide: Sequence[Tree],
    turn_s: float,
) -> int:
    """Write the files of fragments that have none yet, until the time is over (step 3).  Return the number of
    fragments without a file.
    """
    fragments = {f.fragment_id: pinned.fragment_json(f.fragment_id) for f in pinned.fragments()}
    files = {i: json.loads(text)["files"] for i, text in fragments.items()}
    state.written = {i: done for i, done in state.written.items() if files.get(i) == done[0]}
    missing = [i for i in fragments if i not in state.written]
    tasks, clock = means
    until = clock.monotonic() + turn_s
    for start in range(0, len(missing), _AT_ONCE):
        some = missing[start : start + _AT_ONCE]
        written = tasks.map(lambda i: write_widened(pinned, i, wide), some)
        state.written |= {i: (files[i], text) for i, text in zip(some, written, strict=True)}
        if clock.monotonic() >= until:
            break
    return len(fragments.keys() - state.written.keys())


def _commit(
    place: tuple[ObjectStore, Contract],
    table: StoredTable,
    state: WideningState,
    pinned: PinnedTable,
    wide: Sequence[Tree],
) -> WideningDone | Refused:
    """Commit the files of all fragments (step 4), if the table is still at its place."""
    fragments, nbytes = [], 0
    for fragment in pinned.fragments():
        now = json.loads(pinned.fragment_json(fragment.fragment_id))
        written = state.written[fragment.fragment_id][1]
        nbytes += max(0, fragment_bytes(written) - fragment.nbytes)
        fragments.append(json.dumps({**now, "files": json.loads(written)["files"]}))
    properties = {PROPERTY_WIDENING: json.dumps([tree.name for tree in wide])}
    check_present(*place)
    with point("columns.widen"):
        outcome = table.change_columns(widened(pinned, wide, fragments, properties))
    match outcome:
        case Committed(version=version):
            return WideningDone(version, (), len(fragments), nbytes)
        case Conflicted(reason=reason):
            return Refused(reason)
        case CommitLost(cause=cause):
            return Refused(f"whether the commit landed is not known: {cause}", Why.LOST)
        case _:
            assert_never(outcome)


def _wider(tree: Tree, column: Column) -> Tree:
    """Return a column of the version with the wider types.  Fields are matched by their ids, because an unfinished
    change may have given members another order or other names."""
    types = [parse_type(column.type), parse_type(column.widened.type)]
    of_ids = zip(types, (column.field_ids, column.widened.field_ids), strict=True)
    now, then = (tree_of(pa.field(column.name, type_), own) for type_, own in of_ids)
    wider = {old.id: new for old, new in zip(now.all(), then.all(), strict=True) if old.id != new.id}
    return with_leaves(tree, lambda leaf: replace(wider.get(leaf.id, leaf), name=leaf.name))


def _new_ids(column: Column) -> frozenset[int]:
    """Return the ids that the column gets by its widening."""
    return frozenset(column.widened.field_ids) - frozenset(column.field_ids)


def _renumbered(newest: Contract, highest: int) -> tuple[Column, ...]:
    """Return the contract's columns with new field ids for their widenings.  The new ids are higher than all ids that
    any version of the contract or the table has had.

    ``highest``: the highest id of the table."""
    known = {id_ for column in newest.columns for id_ in column.lance_ids}
    following = max([newest.highest_field_id or 0, *known, highest]) + 1
    columns = []
    for column in newest.columns:
        new = _new_ids(column)
        if column.widening is not None and min(new) <= highest:
            ids = []
            for id_ in column.widening.field_ids:
                ids.append(following if id_ in new else id_)
                following += id_ in new
            column = column.model_copy(
                update={"widening": column.widening.model_copy(update={"field_ids": tuple(ids)})}
            )
        columns.append(column)
    return tuple(columns)
