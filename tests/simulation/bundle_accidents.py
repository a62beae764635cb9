"""Bundles that are lost, damaged, late, or of what is no longer there: they cost time, and change no row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lancewal_core.errors import ObjectMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import Sequence
from lancewal_core.wal.bundle import decode_bundle, encode_bundle
from lancewal_core.wal.segment import Segment, decode_segment, encode_segment
from tests.simulation.checker import require
from tests.simulation.script import stops
from tests.simulation.stage import Member, Stage
from tests.twins.faults import PutFault


def _bundled(stage: Stage) -> tuple[Member, str]:
    """A member, and the bundle of its first four segments."""
    a = stage.member("a", 0, 1)
    for _ in range(5):
        stage.append(a, 0)
        stage.append(a, 1)
    (key, *_) = _bundles(stage)
    require(paths.parse_wal_bundle(key) == (a.worker._writer.log, 0, 3), "another bundle than the first:", key)
    return a, key


def _bundles(stage: Stage) -> list[str]:
    keys = [info.key for info in stage.bucket.listing(paths.WAL)]
    return [key for key in keys if paths.parse_wal_bundle(key) is not None]


def _replace(stage: Stage, key: str, data: bytes) -> None:
    stage.bucket.delete(key)
    stage.bucket.put(key, data, 0)


def _segment(stage: Stage, member: Member, number: int) -> tuple[str, Segment]:
    key = paths.wal_segment(member.worker._writer.log, Sequence(number))
    segment = decode_segment(stage.bucket.get(key) or b"", key)
    assert isinstance(segment, Segment)
    return key, segment


# -- what readers must not believe ---------------------------------------------------------------------------------


def segment_is_replaced_behind_its_bundle() -> None:
    """A segment of which a bundle has a copy is lost, and somebody puts another in its place, without its rows: no reader
    shows them, since no flush will find them."""
    stage = Stage()
    a, _ = _bundled(stage)
    key, segment = _segment(stage, a, 2)
    (entry,) = segment.entries
    (gone,) = entry.rows.column("k").to_pylist()
    other = replace(segment, entries=(replace(entry, held=entry.rows.slice(0, 0)),), writer="a-person")
    _replace(stage, key, encode_segment(other, stage.contract.rows.wal))
    shown = stage.reader("r").table.to_arrow(["k"])["k"].to_pylist()
    require(gone not in shown, "a row that no segment has is shown:", gone)
    require(len(shown) == 9, "not all other rows are shown:", shown)


def segment_is_lost_though_a_bundle_has_it() -> None:
    """Whoever flushes its generation will not find it: a reader names it, as it would without the bundle."""
    stage = Stage()
    a, _ = _bundled(stage)
    key, _ = _segment(stage, a, 2)
    reading = stage.reader("r")
    with stage.without(key), stops(ObjectMissing):
        reading.read("strong")
    stage.check()


# -- what costs time -------------------------------------------------------------------------------------------------


def bundle_is_lost() -> None:
    """A reader has seen it in a listing; then it is gone."""
    stage = Stage()
    _, key = _bundled(stage)
    reading = stage.reader("r")
    stage.scripts["r"].before("get", key, lambda: stage.bucket.delete(key))
    reading.read("strong")
    require(stage.bucket.get(key) is None, "nobody has asked for the bundle")
    stage.check()


def bundle_is_damaged() -> None:
    stage = Stage()
    _, key = _bundled(stage)
    data = stage.bucket.get(key) or b""
    _replace(stage, key, data[:50] + bytes([data[50] ^ 1]) + data[51:])
    stage.check()


def bundle_is_of_another_log() -> None:
    """As by somebody who copies folders: each lies under the other log's key."""
    stage = Stage()
    a, b = stage.member("a", 0), stage.member("b", 1)
    for _ in range(8):
        stage.append(a, 0)
        stage.append(b, 1)
    (one, other, *_) = (key for key in _bundles(stage) if (paths.parse_wal_bundle(key) or (0, 1))[1] == 0)
    first, second = stage.bucket.get(one) or b"", stage.bucket.get(other) or b""
    _replace(stage, one, second)
    _replace(stage, other, first)
    stage.check()


def bundle_has_other_rows_under_another_tag() -> None:
    """Of segments that were never stored as it says: it is a bundle of nothing that lies there."""
    stage = Stage()
    _, key = _bundled(stage)
    bundle = decode_bundle(stage.bucket.get(key) or b"", key)
    empty = [
        replace(
            copy,
            etag="another",
            segment=replace(
                copy.segment, entries=tuple(replace(e, held=e.rows.slice(0, 0)) for e in copy.segment.entries)
            ),
        )
        for copy in bundle.copies
    ]
    _replace(stage, key, encode_bundle(empty, stage.contract.rows.wal))
    stage.check()


def bundle_is_refused() -> None:
    """The store takes no bundle: no append waits, and the next one is tried."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    a.script.puts += [(".bundle-", PutFault.NEVER_ARRIVED)] * 2
    for _ in range(12):
        stage.append(a, 0)
    require(stage.acknowledged[0] == 12, "durable up to", stage.acknowledged)
    require(len(_bundles(stage)) == 1, "there are the bundles", _bundles(stage))
    stage.check()


def bundle_lands_after_its_segments_are_trimmed() -> None:
    """It is collected in its turn."""
    stage = Stage(history_window_s=0)
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    a.script.puts.append((".bundle-", PutFault.LANDS_LATER))
    for _ in range(5):
        stage.append(a, 0)
        stage.append(a, 1)
    stage.seal(a)
    stage.round(f)
    ((late, data),) = [put for put in stage.bucket.under_way if ".bundle-" in put[0]] or [("", b"")]
    stage.bucket.under_way.clear()
    stage.append_and_seal(a, 0, 1)
    stage.round(f)
    stage.append(a, 0)
    stage.append(a, 1)
    stage.collect(f)
    require(_bundles(stage) == [], "of trimmed segments there are the bundles", _bundles(stage))
    stage.bucket.put(late, data, 0)
    stage.check()
    stage.collect(f)
    require(_bundles(stage) == [], "the late one stays:", _bundles(stage))
    stage.check()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    segment_is_replaced_behind_its_bundle: ("a bundle is believed", "a row that no segment has is shown"),
    segment_is_lost_though_a_bundle_has_it: ("a bundle stands for segments", "ObjectMissing"),
}

ACCIDENTS: list[Callable[[], None]] = [
    bundle_is_lost,
    bundle_is_damaged,
    bundle_is_of_another_log,
    bundle_has_other_rows_under_another_tag,
    bundle_is_refused,
    bundle_lands_after_its_segments_are_trimmed,
]
