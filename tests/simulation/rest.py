"""The end of a run: no more faults, everything becomes durable and merged, and all of it is compared."""

from __future__ import annotations

from collections.abc import Mapping

from lancewal_core.errors import ContractMismatch, TableRestored
from lancewal_core.names import paths
from lancewal_core.names.ids import Region, TableVersion
from lancewal_core.table.columns.versions import CHANGE
from tests.simulation import operating, reading, user
from tests.simulation.checker import require
from tests.simulation.cutting import check_cuts
from tests.simulation.keeping import check_kept
from tests.simulation.subscribing import check_subscribed
from tests.simulation.world import World
from tests.twins.sim_clock import EPOCH_MS


def come_to_rest(world: World, switches_max: int) -> None:
    """No more faults, and what was lost is there again: everything that was produced becomes durable, and merged where
    somebody merges."""
    world.faults.enabled = False
    world.bodies = {group: body for group, body in world.bodies.items() if not group.startswith("operator")}
    for group in world.scheduler.groups() - set(world.bodies) - {"supervisor"}:
        world.scheduler.crash(group)
    for group in world.bodies:
        world.scheduler.pause(group, 0.0)
    operating.resume_everything(world)
    if world.columns is not None:
        user.rename_back(world)
    world.losses.put_back(EPOCH_MS + int(world.scheduler.now * 1000))
    world.log("coming to rest")
    ends = {p: log.high for p, log in enumerate(world.topic.partitions)}
    world.scheduler.run(lambda: all(world.acknowledged.get(p, 0) >= n for p, n in ends.items()), switches_max)
    if world.settings.flushers and world.restored is None:
        ends = {p: log.end for p, log in enumerate(world.topic.partitions)}
        names = {p: world.contract.regions[p].name for p in ends}

        def merged() -> bool:
            up_to = world.merged_up_to()
            asked = any(column.widening is not None for column in world.contract.columns)
            return all(up_to.get(names[p], 0) >= n for p, n in ends.items()) and _finished(world) and not asked

        world.scheduler.run(merged, switches_max)


def _finished(world: World) -> bool:
    """Whether the newest merge is."""
    merges = [v.number for v in world.dataset.landed if "lancewal.merge" in v.transaction.properties]
    return (
        not merges
        or world.bucket.get(paths.merge_finished(TableVersion(merges[-1]), world.contract.making)) is not None
    )


def check_everything(world: World) -> None:
    """Indexes, logs and table against the oracle, when everything is durable and merged."""
    world.checker.check(world.acknowledged)
    _note_trimmed(world)
    check_kept(world)
    check_cuts(world)
    check_subscribed(world)
    if world.restored is not None:
        check_restored(world, world.restored)
    elif world.settings.flushers:
        ends = {region: world.topic.partitions[region.partition].high for region in world.contract.regions}
        check_table(world, ends)


def _note_trimmed(world: World) -> None:
    for region in world.contract.regions:
        if world.bucket.listing(paths.history_prefix(region, world.contract.making)):
            world.note("history pages")
    for page in world.contract.pages:
        first, second = (world.bucket.get(paths.page_version(page, version)) for version in (1, 2))
        if first is not None and second is None and len(world.bucket.listing(paths.page_prefix(page))) > 1:
            world.note("page versions deleted")


def check_table(world: World, cut: Mapping[Region, int]) -> None:
    """The newest version holds what the topic has up to this cut, and of the user's rows those that must be there."""
    newest = world.checker.table.newest()
    batches = list(newest.scan(newest.schema.names))
    world.check_rows(batches, cut, newest.version, "the table:")
    _, by_hand = world.by_hand.split(batches, newest.version)
    left = world.by_hand.left_in_the_end(world.dataset, world.topic, world.contract.regions)
    require(by_hand == left, "rows of a user with keys of the topic: there are", by_hand, "expected", left)


def check_restored(world: World, version: int) -> None:
    """After a restore nothing was merged, and nobody reads as if nothing had happened."""
    landed = [v for v in world.dataset.landed if v.number > version and v.transaction.properties]
    late = [v for v in landed if CHANGE not in v.transaction.properties]  # columns may change meanwhile
    require(not late, "committed after the table was restored:", late)
    try:
        reading.Reading(world, world.process("audience")).read("strong")
    except TableRestored:
        return
    except ContractMismatch as error:
        world.check_misfits(error)
        return
    raise AssertionError("a strong read of a restored table")
