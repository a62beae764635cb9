"""A user, who does to the table what its owner may do at any time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pyarrow as pa

from lancewal_core.errors import ObjectMissing, VersionGone
from lancewal_core.names import paths
from lancewal_core.region.flushes.manifest import read_flush
from lancewal_core.region.state import GenerationState
from lancewal_core.rows.carry import Tree, tree_of
from lancewal_core.rows.column_types import parse_type
from lancewal_core.table.protocol import fragment_files
from lancewal_core.table.watermarks import TABLE_UUID
from tests.simulation.draws import drawn_s
from tests.simulation.settings import USER_KEYS
from tests.simulation.world import World

OF_A_USER = "of_a_user_"
"""How names begin of columns that a user adds."""
_THEIRS = "theirs_"
"""How names begin that a user gives to columns of the contract."""


def user(world: World) -> None:
    """One act after the other, until an old version is restored."""
    rng = Random(f"{world.seed}/user")
    settings = world.settings
    next_key = USER_KEYS
    while world.restored is None:
        world.scheduler.sleep(drawn_s(rng, settings.user_s))
        (act,) = rng.choices(list(settings.user), list(settings.user.values()))
        table = world.checker.table
        match act:
            case "append":
                keys = range(next_key, next_key + rng.randint(1, 3))
                next_key = keys.stop
                append(world, *keys)
            case "append to a shared key" if settings.shared_keys:
                append(world, rng.randrange(settings.shared_keys))
            case "delete rows":
                if not delete_rows(world, rng.sample(range(settings.keys), 2)):
                    continue
            case "index":
                table.create_index()
            case "config":
                table.update_config({TABLE_UUID: world.contract.table_uuid})
            case "compact":
                fragments = [f.fragment_id for f in table.newest().fragments()]
                try:
                    table.compact([i for i in fragments if rng.random() < 0.5])
                except VersionGone:  # files of a flush were lost while it was adopted: its follow-up is still to come
                    world.note("user: compact in vain")
                    continue
            case "add a column":
                table.add_column(f"{OF_A_USER}{len(world.dataset.landed)}", "string")
            case "rename a column":
                if not _rename_and_back(world, rng):
                    continue
            case "clean up":
                clean_up(world, rng.choice([1, 2, 5]))
            case "lose files":
                _lose_files(world, rng)
            case "restore" if len(world.dataset.versions) > 1:
                world.restored = table.restore(rng.choice(sorted(world.dataset.versions)[:-1]))
            case _:
                continue
        world.note(f"user: {act}")
        world.log(f"user: {act}, version {table.newest().version}")


def _rename_and_back(world: World, rng: Random) -> bool:
    """Rename a column of the contract or a member of one, and later rename it back."""
    known, theirs = set(world.contract.field_ids), f"{_THEIRS}{len(world.dataset.landed)}"
    found = [path for path, tree in _paths(world) if tree.id in known and path not in ("k", "a")]
    if not found:
        return False
    world.checker.table.rename_column(rng.choice(found), theirs)
    world.renamed_by_user += 1
    world.scheduler.sleep(drawn_s(rng, 1.0))
    rename_back(world)
    return True


def rename_back(world: World) -> None:
    """Give columns and members that a user has renamed the names that the contract has for them."""
    wanted = {
        i: tree.name
        for column in world.contract.columns
        for tree in tree_of(pa.field(column.name, parse_type(column.type)), column.ids).all()
        for own in (column.field_ids, column.widened.field_ids)
        for i, first in zip(own, column.ids, strict=True)
        if first == tree.id
    }
    for path, tree in _paths(world):
        outer, _, name = path.rpartition(".")
        back = wanted.get(tree.id)
        if name.startswith(_THEIRS) and back is not None:
            there = {other for other, _ in _paths(world)}
            if (f"{outer}.{back}" if outer else back) not in there:
                world.checker.table.rename_column(path, back)


def _paths(world: World) -> list[tuple[str, Tree]]:
    """Columns of the newest version and members of structs, by their paths."""
    return [
        (tree.name if member is tree else f"{tree.name}.{member.name}", member)
        for tree in world.dataset.newest.columns.trees()
        for member in ((tree, *tree.within) if pa.types.is_struct(tree.type) else (tree,))
    ]


def append(world: World, *keys: int) -> None:
    """Rows with keys of the user's own, or keys of the topic, which Kafka's rows win over."""
    world.by_hand.appended(world.checker.table.append(world.user_batch(keys)), keys)


def delete_rows(world: World, keys: Sequence[int]) -> bool:
    """Delete merged rows of the topic's keys; False where there are none."""
    table = world.checker.table
    there = {row["k"] for row in world.rows_of(table.newest().version)}
    found = [k for k in keys if k in there]
    if found:
        table.delete_where("k", found)
    return bool(found)


def clean_up(world: World, keep: int) -> None:
    """Remove old versions only: an unfinished merge, and what is newer than every record of watermarks, is young.

    As the pages for operators allow: what is younger than an hour stays.  A merge that is finished is not, and has its record
    by then; all above the newest one that is finished stays, and of any older versions as many go as there are.
    """
    infos = world.bucket.listing(paths.merges_prefix(world.contract.making))
    finished = max((v for i in infos if (v := paths.parse_merge_finished(i.key)) is not None), default=0)
    table = world.checker.table
    before = set(world.dataset.versions)
    table.cleanup(keep=max(keep, table.newest().version - finished))
    world.taken_by_user |= before - set(world.dataset.versions)


def _lose_files(world: World, rng: Random) -> None:
    """Remove the data files of flushes that no table version refers to."""
    dataset = world.dataset
    referred = {name for version in dataset.versions.values() for f in version.fragments for name in f.files}
    for region in world.contract.regions:
        state = world.checker.states.read([region]).get(region)
        for record in () if state is None else state.generations:
            if record.state is GenerationState.FLUSHED and record.flush is not None and rng.random() < 0.5:
                try:
                    flush = read_flush(world.checker.store, record.flush)
                except ObjectMissing:  # named so late, behind the grace period, that it was deleted: merges rebuild it
                    continue
                names = {name for fragment in flush.fragments for name in fragment_files(fragment)}
                if not names & referred:
                    for name in names:
                        dataset.files.pop(name, None)
