"""Make a kept cut of several tables.

Guarantees
 1. The cut has all records that the source of positions counted when it was asked: for Kafka's ends, all that was
    acknowledged before the call.  It has no record from its positions on.  With ``source`` None, the positions are the
    tables' durable positions (``cuts.positions.durable``).
 2. Each table of the cut equals the fold of its records below its positions, until the cut is dropped.
 3. The cut's record is written after its snapshots.  A process that dies before that leaves snapshots without a cut.
    The next `cut make` with that name removes them, and garbage collection removes unfinished ones a day later.  A cut
    lacks a snapshot only in one case: another process took it for left over before step 5, and this process died in
    step 6, or got no answer there.  Then the error and `cut show` name the table.
 4. If two processes make a cut of the same name at once, one succeeds.  The other one drops its snapshots, and ends with
    ``InvalidInput``.
 5. If the catalog refuses the cut, no snapshot stays.  If the catalog does not answer at step 5, the cut may be made or
    not.  If the catalog or a table does not answer at step 6, the record is already written.  In both cases the
    snapshots stay, and the error says how to find out whether the cut is complete.

Steps
 1. Check that the catalog keeps cuts, and that the name is free.  Drop a cut of that name that has expired by this
    process's clock.
 2. Ask the source for the positions of all topics at the same time.
 3. Wait until these positions are durable in every table.  Nothing has been written so far, except for the drop in step
    1.
 4. Make a snapshot of each table at its positions, several at the same time.  If one cannot be made, drop the others.
 5. Put the cut's record if the catalog has none of that name.
 6. Check that the snapshots still exist.  Between steps 4 and 5 another process may have marked or dropped one as left
    over (``left_over``), since no cut named it yet.  Then remove the record again, and drop the snapshots.
 7. Drop snapshots that earlier runs of `cut make` with that name have left in these tables.  Such a run may not be
    dead: it could still write its record after this cut is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lancewal_core.catalog.catalog import StoredCatalog, check_keeps_cuts
from lancewal_core.catalog.cut import Cut, CutNote, CutTable, snapshot_name
from lancewal_core.errors import (
    ActionNeeded,
    CatalogRefused,
    CutMissing,
    InvalidInput,
    LancewalError,
    PartitionCountChanged,
    Retry,
    or_error,
    or_raised,
)
from lancewal_core.names.words import cut_name
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.address import same_place
from lancewal_core.table.snapshots import Snapshot, check_until, has_notes
from lancewal_flusher.cuts import positions
from lancewal_flusher.cuts.positions import CutAt, CutMember, PositionSource
from lancewal_flusher.cuts.reached import await_reached
from lancewal_flusher.garbage.snapshots import drop_made
from lancewal_tables.cuts.drop import drop_cut, drop_of_cut
from lancewal_tables.cuts.left_over import drop_left_over
from lancewal_tables.snapshots.make import Made, make_snapshot

Taken = tuple[CutMember, Snapshot]
"""A table, and the snapshot of it that was made for the cut."""


@dataclass(frozen=True, slots=True)
class CutWanted:
    """Request to make a cut."""

    name: str
    for_ms: int | None = None
    """Time in ms from now after which garbage collection drops the snapshots; None: never.  With 0 its next run drops
    them."""
    wait_s: float = 60.0
    """Longest time in seconds to wait until the positions are durable in all tables."""


def make_cut(
    catalog: StoredCatalog, members: Sequence[CutMember], wanted: CutWanted, source: PositionSource | None, tasks: Tasks
) -> Cut:
    """Make a cut (module steps), and return it.

    Raises ``InvalidInput`` if the name is taken or not valid, if ``members`` is empty, or if two members are one table.
    Raises ``TokenTimeout`` if a table does not reach its positions in time.  Errors of the position source, of
    snapshots and of the catalog are raised too; an error of one table names it.
    """
    cut_name(wanted.name)
    check_keeps_cuts(catalog)
    if not members:
        raise InvalidInput(f"cut {wanted.name}: name at least one table")
    _check_apart(members)
    # Step 1
    clock = members[0].context.clock
    if wanted.for_ms is not None:
        check_until(clock.now_ms() + wanted.for_ms)
    known = catalog.cut(wanted.name)
    if known is not None:
        if known.moving or not known.is_over(clock.now_ms()):
            raise _taken(wanted.name)
        drop_cut(catalog, known, {member.name: member.context.table for member in members}, tasks)
    # Steps 2 and 3
    if source is None:
        at = positions.durable(members, tasks)
    else:
        at = positions.ask(source, members)
        await_reached(members, at, wanted.wait_s, tasks)
    return keep(catalog, members, wanted, at, tasks)


def keep(catalog: StoredCatalog, members: Sequence[CutMember], wanted: CutWanted, at: CutAt, tasks: Tasks) -> Cut:
    """Make the snapshots and the catalog record of a cut (steps 4 to 7).  The tables must have reached the positions."""
    note = CutNote(
        cut=wanted.name, write_id=members[0].context.new_id(), catalog=catalog.where, table=members[0].name,
        tables=tuple(member.name for member in members), holds=at.holds, asked_ms=at.asked_ms, took_ms=at.took_ms,
    )  # fmt: skip
    # Step 4
    try:
        made = snapshots_of(members, wanted, at, note, tasks)
    except LancewalError as error:
        # Whoever made a cut of this name meanwhile took our snapshots for left over ones (step 7).
        if isinstance(or_error(lambda: catalog.cut(wanted.name)), Cut):
            raise _taken(wanted.name) from error
        raise
    tables = {member.name: _entry(member, snapshot) for member, snapshot in made}
    cut = note.record(tables, [snapshot for _, snapshot in made])
    # Step 5
    _record(catalog, cut, made, tasks)
    # Step 6
    check_snapshots(catalog, cut, made, tasks)
    # Step 7.  An error does not matter: `cut list` still shows what is left over.
    tasks.map(lambda it: or_error(lambda: drop_left_over(catalog, it.context.table, cut.name)), members)
    return cut


def snapshots_of(
    members: Sequence[CutMember], wanted: CutWanted, at: CutAt, note: CutNote, tasks: Tasks
) -> list[Taken]:
    """Make a snapshot of each table at its positions (step 4).  Return them in the order of ``members``.

    If one snapshot cannot be made, all others are dropped, and its error is raised.  ``PartitionCountChanged``: the
    table's contract got other partitions or another topic after the table was opened, so the cut has no positions for
    them.
    """
    from lancewal_reader.point.at import At

    name = snapshot_name(note.cut, note.write_id)

    def make(member: CutMember) -> Snapshot:
        text = note.model_copy(update={"table": member.name}).text()
        point_of_cut = At.positions(at.of[member.name])
        with point("cut.snapshot", table=member.name):
            one = or_error(lambda: make_snapshot(member.context, member.reads, name, point_of_cut, wanted.for_ms, text))
        if member.reads.contract.regions != member.contract.regions:
            if isinstance(one, Made):
                drop_made(member.context.table, one.snapshot)
            raise PartitionCountChanged(
                "the partitions or the topic of its contract changed while the cut was made. Make the cut again"
            )
        return or_raised(one).snapshot

    answers = tasks.map(lambda member: or_error(lambda: make(member)), members)
    made: list[Taken] = []
    faults: list[tuple[str, LancewalError]] = []
    for member, answer in zip(members, answers, strict=True):
        if isinstance(answer, LancewalError):
            faults.append((member.name, answer))
        else:
            made.append((member, answer))
    if faults:
        _drop_all(made, note.write_id, tasks)
        table, error = faults[0]
        raise type(error)(f"cut {note.cut} was not made. Table {table}: {error}", **error.where) from error
    return made


def check_snapshots(catalog: StoredCatalog, cut: Cut, made: Sequence[Taken], tasks: Tasks) -> None:
    """Check the snapshots (step 6).  If one is gone, or marked as left over, remove the cut's record and its snapshots,
    and raise ``CutMissing``, which names the table.

    Errors of tables and of the catalog are raised with a text that says whether the cut is in the catalog.
    """

    def look(taken: Taken) -> bool | LancewalError:
        member, snapshot = taken
        return or_error(lambda: has_notes(member.context.table, snapshot.name, snapshot.notes()))

    answers = list(zip(made, tasks.map(look, made), strict=True))
    for (member, snapshot), answer in answers:
        if answer is False:
            lost = f"another process dropped the snapshot {snapshot.name} of table {member.name} meanwhile"
            _take_back(catalog, cut, lost)
            _drop_all(made, cut.write_id, tasks)
            raise CutMissing(f"cut {cut.name} was not made: {lost}. Make it again", cut=cut.name)
    for (member, snapshot), answer in answers:
        if isinstance(answer, LancewalError):
            raise type(answer)(
                f"cut {cut.name} is in the catalog. Nobody knows whether the snapshot {snapshot.name} of table "
                f"{member.name} is still there: {answer}. `lancewal cut show {cut.name}` tells. If the snapshot is gone, "
                f"drop the cut (`lancewal cut drop {cut.name}`), and make it again",
                **answer.where,
            ) from answer


def _take_back(catalog: StoredCatalog, cut: Cut, lost: str) -> None:
    """Remove the cut's record from the catalog.  ``lost``: why, for the text of an error."""
    try:
        catalog.swap_cut(cut.name, cut, None)
    except LancewalError as error:
        raise type(error)(
            f"cut {cut.name} may be in the catalog, and it is incomplete: {lost}. Its record was not taken back: {error}. "
            f"Drop the cut (`lancewal cut drop {cut.name}`), and make it again",
            **error.where,
        ) from error


def _check_apart(members: Sequence[CutMember]) -> None:
    """Raise ``InvalidInput`` if two of the members are the same table."""
    seen: dict[str, list[CutMember]] = {}
    for member in members:
        of_uuid = seen.setdefault(member.contract.uuid, [])
        for other in of_uuid:
            if same_place(other.reads.place, member.reads.place):
                raise InvalidInput(
                    f"{other.name} and {member.name} are two names of the table at {member.reads.uri}: leave one out "
                    "(--tables), or take it out of the catalog (`lancewal catalog forget`)"
                )
        of_uuid.append(member)


def _record(catalog: StoredCatalog, cut: Cut, made: Sequence[Taken], tasks: Tasks) -> None:
    """Put the cut's record (step 5).  Drop the snapshots if the catalog refuses the record or has another one; keep
    them if it does not answer."""
    try:
        with point("cut.put", cut=cut.name):
            written = catalog.swap_cut(cut.name, None, cut)
    except (CatalogRefused, ActionNeeded):
        _drop_all(made, cut.write_id, tasks)
        raise
    except Retry as error:
        raise type(error)(
            f"it is unknown whether cut {cut.name} was made: {error}. `lancewal cut show {cut.name}` tells. If there is no "
            "such cut, make it again: that also drops the snapshots of this try",
            **error.where,
        ) from error
    if not written:
        _drop_all(made, cut.write_id, tasks)
        raise _taken(cut.name)


def _drop_all(made: Sequence[Taken], write_id: str, tasks: Tasks) -> None:
    def drop(taken: Taken) -> bool | LancewalError:
        member, snapshot = taken
        return or_error(lambda: drop_of_cut(member.context.table, snapshot.name, write_id))

    tasks.map(drop, made)


def _entry(member: CutMember, snapshot: Snapshot) -> CutTable:
    uuid = member.contract.table_uuid
    return CutTable(uri=member.reads.uri, table_uuid=uuid, receipt=snapshot.receipt, snapshot=snapshot.name)


def _taken(name: str) -> InvalidInput:
    return InvalidInput(f"there is a cut {name} already: `lancewal cut drop {name}`, or choose another name")
