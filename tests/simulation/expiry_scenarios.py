"""Interleavings around the expiry of table versions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lancewal_core.errors import ObjectCorrupt, SnapshotMissing, VersionGone
from lancewal_core.region.flushes.manifest import read_flush
from lancewal_core.region.state import GenerationState
from lancewal_core.table.protocol import fragment_files
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.context import FlusherContext
from tests.simulation.checker import require
from tests.simulation.keeping import Keeping, check_kept
from tests.simulation.reading import SimTable
from tests.simulation.script import Crashed, crash
from tests.simulation.stage import Member, Stage
from tests.simulation.trim_scenarios import damaged_record
from tests.simulation.user import clean_up
from tests.twins.faults import PutFault

_WINDOW_S = 3600
_DAY = 1.0
_MINUTE = 1 / 24 / 60


def _merged_thrice(stage: Stage) -> tuple[Member, FlusherContext]:
    """A member, and a flusher that has merged three of its flushes: so there are versions that nothing needs."""
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    for _ in range(3):
        stage.append_and_seal(a, 0)
        stage.round(f)
    return a, f


def receipt_is_read_again_within_the_window() -> None:
    """Versions go between a read and another one at its receipt, which is young enough."""
    stage = Stage(history_window_s=_WINDOW_S)
    a, f = _merged_thrice(stage)
    stage.reader("r").read("strong")
    stage.append_and_seal(a, 0)
    stage.round(f)
    stage.user_appends(5_000)  # no version but that of the read shows its rows
    stage.expire(f, days=50 * _MINUTE)
    stage.reader("again").read_again(*stage.reads[-1])
    require(stage.counts.get("read again") == 1, "it was not read by its version:", stage.counts)
    report = stage.expire(f, days=30 * _MINUTE)
    require(bool(report.expired_versions), "no version went an hour later:", report)
    stage.check_table()
    stage.check()


def tag_holds_a_version() -> None:
    """A user tags a version that would go, and others below and above it do."""
    stage = Stage()
    _, f = _merged_thrice(stage)
    tagged = sorted(stage.dataset.versions)[-2]
    rows = stage.rows_of(tagged)
    stage.checker.table.tag(tagged)
    report = stage.expire(f, days=_DAY)
    require(bool(report.expired_versions), "nothing went")
    require(stage.rows_of(tagged) == rows, "the tagged version has other rows")
    stage.check()


def branch_holds_a_version() -> None:
    """A snapshot is made of merged and unmerged rows; then everything that it was made of is merged, and would go.

    Another one, for some hours, goes.
    """
    stage = Stage()
    a, f = _merged_thrice(stage)
    stage.append_and_seal(a, 0)
    stage.append(a, 1)
    keeping = Keeping(stage, stage.process("keeper"))
    keeping.make(None, None, "kept")
    keeping.make(None, 12 * 3600 * 1000, "over")
    stage.append_and_seal(a, 0, 1)
    stage.round(f)
    stage.checker.table.compact()
    stage.append_and_seal(a, 0, 1)
    stage.round(f)
    report = stage.expire(f, days=_DAY)
    require(bool(report.expired_versions), "nothing went")
    require(report.dropped_snapshots == ("over",), "other snapshots were dropped:", report.dropped_snapshots)
    keeping.read("kept")
    keeping.read("over")
    check_kept(stage)
    stage.check()


def snapshot_of_another_moment_has_its_name() -> None:
    """Between a reader's plan of a snapshot and its rows it is dropped, and another one made under its name."""
    stage = Stage()
    a, f = _merged_thrice(stage)
    stage.append_and_seal(a, 0)
    keeping = Keeping(stage, stage.process("keeper"))
    keeping.make(None, None, "kept")
    planned = SimTable(stage, stage.process("r")).scan(at="snapshot:kept")
    before = stage.snapshots["kept"].rows
    keeping.drop("kept")
    stage.append_and_seal(a, 0)
    stage.round(f)
    keeping.make(None, None, "kept")
    require(stage.snapshots["kept"].receipt != planned.receipt, "it is the same one")
    with suppress(VersionGone, SnapshotMissing):
        rows, _ = stage.by_hand.split(planned.to_reader(), planned.receipt.version)
        require(rows == before, "rows of another snapshot:", rows, "instead of", before)
    stage.check()


def merge_is_unfinished_when_versions_expire() -> None:
    """A merge lands above a version of a user's, and the flusher dies before it has finished; a day later versions are due."""
    stage = Stage()
    a, f = _merged_thrice(stage)
    stage.append_and_seal(a, 0)
    g, script = stage.flusher("g"), stage.scripts["g"]
    script.before("commit", "table", lambda: stage.user_appends(5_000))
    script.puts.append(("merges/", PutFault.NEVER_ARRIVED))  # the record, with which less would be asked of versions
    script.before("put", ".finished", crash)
    script.down.append(("put", "merges/"))
    with suppress(Crashed):
        stage.round(g)
    stage.user_appends(5_001)
    report = stage.expire(stage.flusher("c"), days=_DAY)
    require(not report.expired_versions, "versions went though the merge is not finished:", report.expired_versions)
    stage.round(f)
    stage.check_table()
    stage.check()


def _flushed_files(stage: Stage, partition: int) -> list[str]:
    """Data files of the partition's flushes that the index knows."""
    state = stage.process("audience").states.read([stage.region(partition)])[stage.region(partition)]
    flushes = [
        record.flush for record in state.generations if record.flush and record.state is not GenerationState.OPEN
    ]
    fragments = [f for key in flushes for f in read_flush(stage.checker.store, key).fragments]
    return [name for fragment in fragments for name in fragment_files(fragment)]


def restore_takes_merges_back() -> None:
    """A user restores an old version, and a person has what was merged since merged again; before that a day passes."""
    stage = Stage(history_window_s=30 * 24 * 3600)
    a, f = _merged_thrice(stage)
    before = stage.process("audience").watermarks.newest()[1]
    stage.append_and_seal(a, 0)
    stage.round(f)
    files = _flushed_files(stage, 0)
    restored = stage.checker.table.restore(before.version)
    stage.process("person").watermarks.decide(InForce(restored, None, before.regions), "replay")
    stage.user_appends(5_000)
    stage.expire(stage.flusher("c"), days=60.0)
    missing = stage.checker.table.files_missing(files)
    require(not missing, "files of flushes that are to be merged again are gone:", missing)
    stage.round(f)
    stage.check_table()
    stage.check()


def name_of_a_branch_cannot_be_read() -> None:
    """An object among the names of branches is none, until a person removes it.  A snapshot is overdue meanwhile."""
    stage = Stage()
    a, f = _merged_thrice(stage)
    stage.append_and_seal(a, 0)
    Keeping(stage, stage.process("keeper")).make(None, 12 * 3600 * 1000, "over")
    stage.dataset.names_fault = ObjectCorrupt("_refs/branches/odd.json is no branch")
    report = stage.expire(f, days=_DAY)
    went = (*report.expired_versions, *report.dropped_snapshots)
    require(not went, "versions or snapshots went though a name cannot be read:", went)
    stage.dataset.names_fault = None
    report = stage.expire(f, days=_MINUTE)
    require(bool(report.expired_versions), "nothing went once all names could be read")
    require(report.dropped_snapshots == ("over",), "other snapshots were dropped:", report.dropped_snapshots)
    stage.check()


def flush_of_a_damaged_region_waits() -> None:
    """The record of a region that has a flush is damaged for more than a week, while others are merged."""
    stage = Stage()
    a, f = _merged_thrice(stage)
    stage.append_and_seal(a, 0)
    files = _flushed_files(stage, 0)
    with damaged_record(stage, 0), suppress(Exception):
        stage.expire(f, days=8.0)
    missing = stage.checker.table.files_missing(files)
    require(not missing, "files of the flush that waits for its merge are gone:", missing)
    stage.round(f)
    stage.check_table()
    stage.check()


def flush_waits_for_days() -> None:
    """A flush is not merged for more than a week: the flusher was stopped, only its garbage is collected."""
    stage = Stage()
    a, f = _merged_thrice(stage)
    stage.append_and_seal(a, 0)
    files = _flushed_files(stage, 0)
    stage.expire(f, days=8.0)
    missing = stage.checker.table.files_missing(files)
    require(not missing, "files of the flush that waits for its merge are gone:", missing)
    stage.round(f)
    stage.check_table()
    stage.check()


def record_of_a_merge_gets_no_reply() -> None:
    """The put of a merge's record has no reply and never lands; a user commits twice, and cleans up what is finished."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    stage.append_and_seal(a, 0)
    stage.scripts["f"].puts += [("merges/", PutFault.NONE), ("merges/", PutFault.NEVER_ARRIVED)]
    stage.round(f)
    stage.user_appends(5_000)
    stage.user_appends(5_001)
    clean_up(stage, 1)
    stage.check_table()
    stage.check()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    receipt_is_read_again_within_the_window: ("versions expire at once", "within the window"),
    tag_holds_a_version: ("a tag holds nothing", "is gone"),
    branch_holds_a_version: ("a branch holds nothing", "is gone"),
    snapshot_of_another_moment_has_its_name: ("a snapshot is known by its number", "rows of another snapshot"),
    merge_is_unfinished_when_versions_expire: ("versions expire below an unfinished merge", "not finished|proven"),
    restore_takes_merges_back: ("versions expire after a restore", "are gone"),
    name_of_a_branch_cannot_be_read: ("names that cannot be read hold nothing", "went though"),
    flush_of_a_damaged_region_waits: ("versions expire beside damage", "are gone"),
    flush_waits_for_days: ("versions expire beside a flush that waits", "are gone"),
    record_of_a_merge_gets_no_reply: ("finished without its record", "cannot be proven"),
}
