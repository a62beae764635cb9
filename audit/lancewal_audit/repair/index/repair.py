"""``lancewal repair region``: rebuild a region's state from the logs, if the newest versions of its page have lost it.

Guarantees
 1. The new state covers every position from a known beginning to the last position that any log leads to, without a gap.
    The beginning comes from an older version that can be read, or the table's watermark, or else is the region's first
    position.  A gap stops the repair, and the error names the missing offsets.  With ``before_gap`` the region ends
    before the gap, if Kafka still has these offsets for ingest to read, with the same records.
 2. Generations that have a flush keep their number and their positions, so that references to them stay right; the
    others are SEALED.  No generation is OPEN: the next claimer continues at the end.
 3. No former owner adds to the region: ingest is paused and its group has no member, the flusher is paused, and every log
    is ended by a fence before the logs are read.
 4. The new state follows the existing versions as any swap does: by a put-if-absent at the number after the newest.
    A process that knows the newest version loses to it, or wins, and then the repair is refused.  The same object is put
    at all numbers that are absent between the last readable version and a number well above every known one.  So a
    process that remembers a lost version meets the new state too.  The numbers are put in ascending order.  If a later
    number were put first, the newest version so far would for a while have an absent number after it.  A process that
    knows this version would still take it for the newest, and swap.
 5. A crash leaves fences, or some of these numbers.  The object's write id names the last number, so a repeated command
    puts the rest.
 6. Other regions of the page keep their records as the newest version has them, damaged ones too.  If that version
    cannot be read, or a later one is known to be lost, older versions say nothing certain of these regions.  They are
    then marked as lost, for a repair of their own, and the report names them.

Steps
 1. List the versions of the page, and find those that can be read.
 2. Read the watermark of a finished merge, and the region's flushes.
 3. Survey the logs, and choose the generations.
 4. Check that no service works (guarantee 3), end all logs, and choose the generations again.
 5. Put the new version at each of the numbers, in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.index.entry_chain import farthest_chain, runs
from lancewal_audit.repair.index.evidence import Versions, finished_mark, flushes_of, versions_of
from lancewal_audit.repair.index.generations import (
    empty_generation,
    first_position,
    flushed_behind,
    in_order,
    joined_in,
    known_generations,
    leads_as_far,
    sealed,
    start_of,
    trimmed_boundary,
)
from lancewal_audit.repair.log_survey import survey_logs
from lancewal_audit.repair.told import Told, of_generation, told
from lancewal_core.errors import RepairRefused, RetentionLost, counted
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, OwnerId, Position, Region
from lancewal_core.region.loss_record import behind_losses, read_losses, replaced_below
from lancewal_core.region.pages.state_page import PageRecord, StatePage, encode_page
from lancewal_core.region.state import RegionState
from lancewal_core.region.states import record_of
from lancewal_core.store.object_store import Lost, put_new
from lancewal_core.table.control import Service, read_control
from lancewal_core.wal.log_end import end_log

MARGIN = 100
"""Number of versions that are put above the newest listed one, in case a process remembers a version that was lost."""
MARGIN_BLIND = 1_000
"""Number of versions that are put above the highest known one if no version is listed (see ``MARGIN``)."""
_FILLS = "repair-"
"""Prefix of the write id of a repaired page.  The last version number at which the page is put follows it."""
_SHOWN = 5
"""Number of unreadable versions that a report names at most."""


@dataclass(frozen=True, slots=True)
class StatePlan:
    """Plan of the repair.  ``index``: the state to write; None if the newest listed version is right."""

    region: Region
    versions: Versions
    index: RegionState | None
    missing: tuple[Position, Position] | None
    """First gap as positions [first, next): no log has them, though logs have later ones.  None if there is no gap."""
    unreadable: tuple[str, ...]
    """Texts about damaged and missing segments, which may have held more entries of the region."""

    def lines(self) -> list[Told]:
        """Return sentences about the listed versions, and about the state that is to be written."""
        sound = self.versions.sound
        found = [
            told(
                f"versions up to {self.versions.newest} are listed, "
                + ("none of them can be read" if sound is None else f"{sound[0]} is the newest that can be read"),
                **self.region.place,
                state_version=self.versions.newest,
                readable=None if sound is None else sound[0],
            ),
            *map(told, self.versions.damaged[:_SHOWN]),
        ]
        if len(self.versions.damaged) > _SHOWN:
            found.append(told(f"{len(self.versions.damaged) - _SHOWN} more cannot be read"))
        if self.index is None:
            return [*found, told("it covers everything in the logs")]
        for r in self.index.generations:
            said = f"generation {r.generation}: {r.state.name}, positions {r.first} to {r.next}, log {r.log}"
            found.append(told(said, **of_generation(self.region, r)))
        if self.missing is not None:
            first, end = self.missing
            said = f"offsets {first} to {end - 1} are in no log; everything after them is left out"
            found.append(told(said, **self.region.place, first=first, next=end))
        return [*found, *(told(f"may have held more: {key}") for key in self.unreadable)]


def plan_state(
    context: RepairContext, region: Region, low: Callable[[], Position], *, before_gap: bool = False, above: int = 0
) -> StatePlan:
    """Find out which state to write, and return the plan (steps 1 to 3).

    ``low`` returns the first offset that Kafka has.  ``above``: number of a version that is known to have existed.
    Raises ``RepairRefused`` if the logs have a gap.  ``RetentionLost``: Kafka cannot fill the gap either.
    """
    # Step 1
    versions = versions_of(context, region)
    # Step 2
    mark = finished_mark(context, region)
    flushes = flushes_of(context, region)
    # Step 3
    survey = survey_logs(context, [region])
    pieces = [piece for log in survey.values() for piece in log.pieces[region]]
    known = known_generations(versions, mark, flushes)
    start = start_of(known, mark, lambda: first_position(context, region, versions, flushes, survey, low))
    records = [*known, *flushed_behind(start, flushes, pieces, survey)]
    at = records[-1].next if records and records[-1].next is not None else start[1]
    generation = records[-1].generation + 1 if records else start[0]
    chain = farthest_chain(pieces, at, joined_in(survey))
    for part in runs(chain, joined_in(survey)):
        records.append(sealed(generation, part))
        generation += 1
    end = records[-1].next if records and records[-1].next is not None else start[1]
    behind = [piece.first for piece in pieces if piece.first > end]
    missing = (end, min(behind)) if behind else None
    unreadable = tuple(why for log in survey.values() for why in (*log.damaged.values(), *log.holes))
    if (
        versions.sound is not None
        and versions.sound[0] == versions.newest >= above
        and leads_as_far(versions.sound[1], records, mark, survey)
    ):
        return StatePlan(region, versions, None, None, unreadable)
    if missing is not None and not before_gap:
        raise region.error(
            RepairRefused,
            f"offsets {missing[0]} to {missing[1] - 1} are in no log that can be read, though logs hold later ones. Damaged "
            f"or lost: {list(unreadable)[:3] or 'none is known'}. Restore the missing segments from the store's own "
            "versions. Or, if Kafka still has these offsets and all after them, run the command with --before-gap, and "
            "ingest reads them again. Nothing was changed",
        )
    if missing is not None:
        _check_kafka(context, region, missing[0], low())
    records = in_order(records)
    if not records:
        records = [empty_generation(Generation(start[0]), start[1], context)]
    generation, trimmed, time = trimmed_boundary(context, region, versions, known, records)
    index = RegionState(region, context.contract.version, tuple(records), generation, trimmed, context.new_id(), time)
    index.check()
    return StatePlan(region, versions, index, missing, unreadable)


def _check_kafka(context: RepairContext, region: Region, at: Position, low: Position) -> None:
    """Raise ``RetentionLost`` unless ingest can read the same records again from ``at`` on.

    Offsets that a person accepted as lost are skipped."""
    losses = read_losses(context.store, region, context.contract.making)
    needed, below = behind_losses(losses, at), replaced_below(losses)
    if needed < below:
        raise RetentionLost(
            f"region {region.name}: offsets from {at} on are in no log that can be read, and cannot be read again. The topic "
            f"lost its tail once, and below {below} Kafka may have other records. Restore the missing segments from the "
            "store's own versions. Nothing was changed",
            **region.place,
        )
    if low > needed:
        raise RetentionLost(
            f"region {region.name}: offsets from {at} on are in no log that can be read, and Kafka begins at {low}. Restore "
            "the missing segments from the store's own versions. Nothing was changed",
            **region.place,
        )


def check_quiet(context: RepairContext, members: Callable[[], int]) -> None:
    """Raise ``RepairRefused`` while a service may change the region (guarantee 3).

    ``members`` returns the number of members of the consumer group."""
    control = read_control(context.store, context.contract.making)
    running = [s for s in Service if control.paused(s, context.clock.now_ms()) is None]
    if running:
        commands = " && ".join(f"lancewal pause {service}" for service in running)
        raise RepairRefused(f"{' and '.join(running)} must be paused: `{commands}`. Nothing was changed")
    count = members()
    if count:
        raise RepairRefused(
            f"the table's consumer group has {counted(count, 'member')}: stop ingest. A process that remembers the lost state "
            "would continue from it. Nothing was changed"
        )


def repair_state(
    context: RepairContext,
    region: Region,
    members: Callable[[], int],
    low: Callable[[], Position],
    *,
    before_gap: bool = False,
    above: int = 0,
) -> list[Told]:
    """End the logs and write the new state (steps 4 and 5); return what was done.  Arguments: see ``plan_state``.

    ``members`` returns the number of members of the consumer group.  Raises ``RepairRefused`` if a service may be at
    work, or the state has changed meanwhile.
    """
    # Step 4
    check_quiet(context, members)
    plan = plan_state(context, region, low, before_gap=before_gap, above=above)
    if plan.index is None:
        return _go_on(context, plan)
    for log, found in survey_logs(context, [region]).items():
        if found.fence is None:
            end_log(context.store, context.tasks, context.clock, log, {region: found.behind}, OwnerId("repair"))
    again = plan_state(context, region, low, before_gap=before_gap, above=above)
    if again.index is None or again.versions != plan.versions:
        raise RepairRefused(f"region {region.name}: its state has changed meanwhile; run the command again")
    check_quiet(context, members)
    # Step 5
    margin = MARGIN if plan.versions.newest else MARGIN_BLIND
    top = max(plan.versions.newest, above) + margin
    page, lost = _page_with(context, again.versions, again.index, above)
    page = replace(page, write_id=f"{_FILLS}{top}-{page.write_id}")
    sound = again.versions.sound
    done = _fill(
        context,
        region,
        encode_page(page),
        range((0 if sound is None else sound[0]) + 1, top + 1),
        again.versions.newest,
    )
    if lost:
        named = ", ".join(str(partition) for partition in lost)
        said = f"the states of these partitions were in the same object and are lost too, repair each: {named}"
        done.append(told(said, **region.place, lost_too=lost))
    return done


def _page_with(
    context: RepairContext, versions: Versions, state: RegionState, above: int
) -> tuple[StatePage, list[int]]:
    """Return the page with the state, and the partitions that the page marks as lost (guarantee 6)."""
    per_page = context.contract.regions_per_page
    page = context.contract.page_of(state.region)
    record = {state.region.partition: record_of(state, context.clock)}
    if versions.page is not None and versions.newest >= above:
        return replace(versions.page.with_records(record), write_id=context.new_id()), []
    lost = [r.partition for r in context.contract.regions if context.contract.page_of(r) == page and r != state.region]
    marks = {partition: PageRecord(b"", context.clock.now_ms()) for partition in lost}
    return StatePage(page, per_page, context.new_id(), {}).with_records({**marks, **record}), lost


def _go_on(context: RepairContext, plan: StatePlan) -> list[Told]:
    """Put the newest page at the remaining numbers of an interrupted repair (guarantee 5).  Return what was done; an
    empty list if no number is missing."""
    newest, page = plan.versions.newest, plan.versions.page
    if page is None or not page.write_id.startswith(_FILLS):
        return []
    top = int(page.write_id.removeprefix(_FILLS).split("-")[0])
    data = context.store.get(paths.page_version(page.page, newest))
    return [] if data is None else _fill(context, plan.region, data, range(newest + 1, top + 1), newest)


def _fill(context: RepairContext, region: Region, data: bytes, numbers: range, newest: int) -> list[Told]:
    """Put the page ``data`` at each of the ``numbers`` that is absent, in ascending order (guarantee 4).  Return what
    was done.

    Versions that exist up to ``newest`` stay as they are.
    """
    page = context.contract.page_of(region)
    filled = 0
    for number in numbers:
        key = paths.page_version(page, number)
        if number <= newest and context.store.get(key) is not None:
            continue
        outcome = put_new(context.store, key, data, "run the command again")
        if isinstance(outcome, Lost) and outcome.found != data:
            raise RepairRefused(f"region {region.name}: its state has changed meanwhile; run the command again")
        filled += 1
    if not filled:
        return []
    top = numbers[-1]
    said = f"version {top} of its state is written, and {counted(filled - 1, 'version')} below it with the same content"
    return [told(said, **region.place, state_version=top, filled=filled - 1)]
