"""Rows of fragments that compactions have rewritten, from an older version to a newer one.

A ``Rewrite`` writes the live rows of some fragments, in their order, as new fragments.  Which rows were live is known from
the version right below it.  So the place of each row is computed from deletion vectors alone, and no row is read.

Guarantees
 1. A row of the older version that is not in ``Traced.gone`` is live in the newer one, as a row that is not in ``come``.
    Its cells in the wanted columns are equal.  The same holds the other way round.
 2. A fragment's rows are followed only where transactions prove each step, and where the numbers of rows agree.  The
    fragments that a step made are identified by their files, never by ids alone: after a restore, ids may be used
    again.
 3. Rows are read only if the files of a wanted column have changed on the way, and only in these columns.
 4. Time and memory follow the number of changed rows and of fragments, not that of unchanged rows.

If a fragment cannot be followed, all of its rows count as not shared.  ``untraced`` names fragments that vanished in
a version of another kind.  Such are restores, versions that were removed, and compactions that rewrote an index,
whose transactions cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lancewal_core.errors import VersionGone
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.protocol import Fragment, PinnedTable
from lancewal_reader.changes.cells import Addresses, Cells, Names, row_addresses
from lancewal_reader.changes.vanishings import Vanishing, vanishings

Rows = npt.NDArray[np.int64]
"""Physical rows of a fragment, or numbers of rows, ascending."""


@dataclass(frozen=True, slots=True)
class Traced:
    """The rows that only one of two versions has, for fragments that only one of them has.  Addresses are listed by
    fragment.
    """

    gone: Sequence[Addresses]
    come: Sequence[Addresses]
    untraced: Sequence[Untraced]


@dataclass(frozen=True, slots=True)
class Untraced:
    """A fragment whose rows could not be followed."""

    fragment_id: int
    version: int | None
    """First table version without the fragment.  None: no remaining version shows where it vanished."""
    why: str
    """Why its rows could not be followed: a clause for a message."""


@dataclass(slots=True, eq=False)
class _Space:
    """A fragment, as it was first seen, and what is known about its physical rows."""

    fragment: Fragment
    new: Rows
    """Rows of the fragment that are not live rows of the older version."""
    apart: Names = frozenset()
    """Columns in which rows outside ``new`` may differ from the rows of the older version."""
    made_by: _Step | None = None
    """Step that made the fragment.  None: the older version has the fragment."""
    dead: Rows | None = None
    """Rows of the fragment that the newer version does not have.  None: it has no row of the fragment."""

    def rows(self) -> Rows:
        return np.arange(self.fragment.physical_rows)

    def origin(self, rows: Rows) -> Addresses:
        """Return the addresses that these rows had in the older version.  None of the rows may be ``new``."""
        if self.made_by is None:
            return row_addresses(self.fragment, rows)
        return self.made_by.origin(self, rows)


@dataclass(slots=True, eq=False)
class _Step:
    """One compaction: the live rows of its old fragments, numbered from 0 on, became the rows of new fragments."""

    old: Sequence[_Space]
    hidden: Sequence[Rows]
    """For each old fragment its deleted rows."""
    made: list[_Space] = field(default_factory=list)
    old_starts: Rows = field(init=False)
    """Number of the first live row of each old fragment.  The last item is the number of all live rows."""

    def __post_init__(self) -> None:
        live = [s.fragment.physical_rows - len(hidden) for s, hidden in zip(self.old, self.hidden, strict=True)]
        self.old_starts = np.cumsum([0, *live])

    def make(self, fragments: Sequence[Fragment], apart: Names) -> None:
        """Add the new fragments, and find which of their rows are new."""
        parts = [
            start + _number(without(space.new, hidden), hidden)
            for space, hidden, start in zip(self.old, self.hidden, self.old_starts[:-1], strict=True)
        ]
        new, start = np.concatenate(parts), 0
        for fragment in fragments:
            end = start + fragment.physical_rows
            first, last = np.searchsorted(new, [start, end])
            self.made.append(_Space(fragment, new[first:last] - start, apart, self))
            start = end

    def bury(self) -> None:
        """Find the rows of the old fragments that the newer version no longer has."""
        starts = self._made_starts()
        parts = [s + (m.rows() if m.dead is None else m.dead) for m, s in zip(self.made, starts, strict=True)]
        dead = np.concatenate(parts)
        for at, (space, hidden) in enumerate(zip(self.old, self.hidden, strict=True)):
            first, last = np.searchsorted(dead, self.old_starts[at : at + 2])
            space.dead = np.union1d(hidden, _placed(dead[first:last] - self.old_starts[at], hidden))

    def origin(self, made: _Space, rows: Rows) -> Addresses:
        numbers = rows + self._made_starts()[self.made.index(made)]
        ends = np.searchsorted(numbers, self.old_starts)
        parts = [
            space.origin(_placed(numbers[ends[at] : ends[at + 1]] - self.old_starts[at], hidden))
            for at, (space, hidden) in enumerate(zip(self.old, self.hidden, strict=True))
        ]
        return np.concatenate(parts)

    def _made_starts(self) -> Rows:
        return np.cumsum([0, *[space.fragment.physical_rows for space in self.made[:-1]]])


def trace(opened: OpenedTable, cells: Cells, gone: Mapping[int, Fragment], come: Mapping[int, Fragment]) -> Traced:
    """Follow the rows of the fragments ``gone`` of the older version to the fragments ``come`` of the newer version.
    Both mappings are by fragment id.
    """
    older, newer = cells.versions
    hidden, hidden_now = hidden_rows(opened.tasks, older, gone), hidden_rows(opened.tasks, newer, come)
    first = {i: _Space(fragment, hidden[i]) for i, fragment in gone.items()}
    walk = _Walk(opened, cells, dict(first))
    if gone and come:
        for vanishing in vanishings(opened, older, newer):
            walk.go_on(vanishing)
    came = [row_addresses(fragment, walk.arrive(fragment, hidden_now[i])) for i, fragment in come.items()]
    for step in reversed(walk.steps):
        step.bury()
    left = [
        row_addresses(s.fragment, without(s.rows() if s.dead is None else s.dead, hidden[i])) for i, s in first.items()
    ]
    lost = [Untraced(i, None, "versions in between are gone, or were restored") for i in walk.heads if i not in come]
    return Traced(left, came, [*walk.untraced, *lost] if come else ())


class _Walk:
    """The way from the older version to the newer one.  ``heads``: fragments that hold rows of the older version."""

    def __init__(self, opened: OpenedTable, cells: Cells, heads: dict[int, _Space]) -> None:
        self._opened = opened
        self._cells = cells
        self.heads = heads
        self.steps: list[_Step] = []
        self.untraced: list[Untraced] = []

    def go_on(self, vanishing: Vanishing) -> None:
        """Advance to the next version in which fragments vanish."""
        steps: list[_Step] = []
        if any(not self.heads.keys().isdisjoint(group.old_ids) for group in vanishing.rewritten):
            with suppress(VersionGone):  # a clean-up removes versions in between just now
                steps = self._steps(vanishing)
        followed = {space.fragment.fragment_id for step in steps for space in step.old}
        for number in sorted(vanishing.vanished & self.heads.keys()):
            del self.heads[number]
            if number not in followed and not vanishing.only_deletes:
                self.untraced.append(Untraced(number, vanishing.version, vanishing.unproven))
        self.heads |= {space.fragment.fragment_id: space for step in steps for space in step.made}
        self.steps += steps

    def arrive(self, fragment: Fragment, hidden: Rows) -> Rows:
        """Return the live rows of a fragment of the newer version that the older version does not have.  Note which
        rows of the fragment are dead.
        """
        space = self._head(fragment)
        if space is None:
            return without(np.arange(fragment.physical_rows), hidden)
        new, space.dead = without(space.new, hidden), hidden
        apart = space.apart | self._cells.apart_since(space.fragment, fragment)
        if apart:
            rows = without(without(space.rows(), space.new), hidden)
            equal = self._cells.equal(space.origin(rows), row_addresses(fragment, rows), apart)
            new, space.dead = np.union1d(new, rows[~equal]), np.union1d(hidden, rows[~equal])
        return new

    def _steps(self, vanishing: Vanishing) -> list[_Step]:
        versions = (vanishing.version - 1, vanishing.version)
        below, pinned = self._opened.tasks.map(self._opened.table.at, versions)
        there = below.fragment_ids()
        arrived = np.setdiff1d(pinned.fragment_ids(), there, assume_unique=True).tolist()
        made = {file: fragment for fragment in map(pinned.fragment, arrived) for file in fragment.files}
        found = []
        for group in vanishing.rewritten:
            if group.new_files and np.isin(group.old_ids, there).all() and made.keys() >= set(group.new_files):
                old, new = [below.fragment(i) for i in group.old_ids], [made[file] for file in group.new_files]
                step = self._step(below, old, new)
                found += [] if step is None else [step]
        return found

    def _step(self, below: PinnedTable, old: Sequence[Fragment], new: Sequence[Fragment]) -> _Step | None:
        """Return the step from the fragments ``old`` to the fragments ``new``.  Return None if their numbers of rows
        disagree, or if ``old`` holds no row of the older version.
        """
        heads = [self._head(fragment) for fragment in old]
        if not any(heads):
            return None
        hidden = hidden_rows(self._opened.tasks, below, {f.fragment_id: f for f in old})
        if sum(f.physical_rows - len(hidden[f.fragment_id]) for f in old) != sum(f.physical_rows for f in new):
            return None
        apart, spaces = self._cells.lost(old, new), []
        for fragment, head in zip(old, heads, strict=True):
            if head is None:
                spaces.append(_Space(fragment, np.arange(fragment.physical_rows)))
                continue
            since = self._cells.apart if head.made_by is None else self._cells.apart_since
            apart |= head.apart | since(head.fragment, fragment)
            spaces.append(head)
        step = _Step(spaces, [hidden[fragment.fragment_id] for fragment in old])
        step.make(new, apart)
        return step

    def _head(self, fragment: Fragment) -> _Space | None:
        """Return the known state of a fragment that holds rows of the older version."""
        found = self.heads.get(fragment.fragment_id)
        return found if found is not None and is_same_space(found.fragment, fragment) else None


def is_same_space(one: Fragment, other: Fragment) -> bool:
    """Return whether two fragments with the same id have the same physical rows, which is the case if they share a data
    file.
    """
    return one.physical_rows == other.physical_rows and not set(one.files).isdisjoint(other.files)


def hidden_rows(tasks: Tasks, pinned: PinnedTable, fragments: Mapping[int, Fragment]) -> dict[int, Rows]:
    """Return the deleted rows of the given fragments of a version, by fragment id."""
    some = [i for i, fragment in fragments.items() if fragment.deleted_rows]
    found = dict.fromkeys(fragments, np.zeros(0, np.int64))
    return found | dict(zip(some, tasks.map(lambda i: np.sort(pinned.hidden_rows(i)), some), strict=True))


def without(rows: Rows, others: Rows) -> Rows:
    """Return the rows that are not in ``others``.  Both arrays must ascend."""
    if not len(rows) or not len(others):
        return rows
    found = others[np.minimum(np.searchsorted(others, rows), len(others) - 1)]
    left: Rows = rows[found != rows]
    return left


def _number(rows: Rows, hidden: Rows) -> Rows:
    """Return the numbers of live rows among all live rows."""
    return rows - np.searchsorted(hidden, rows)


def _placed(numbers: Rows, hidden: Rows) -> Rows:
    """Return the live rows that have these numbers among all live rows: the inverse of ``_number``."""
    return numbers + np.searchsorted(hidden - np.arange(len(hidden)), numbers, side="right")
