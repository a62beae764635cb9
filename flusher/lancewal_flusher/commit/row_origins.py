"""The regions through which the rows of new data files came, recorded by the commit that brings the files.

If a table's rows do not tell their region (``keys.origin``), every commit of rows from Kafka carries the property

* ``lancewal.key_regions``, as JSON: ``regions``, a list of [name, position up to which it is merged], and ``files``.
  The latter lists for each data file its spans of consecutive physical rows: for each span the index of a region in
  ``regions``, and the number of rows that came through it.

Commits of compactions, loads and users have no such record.  The record of a version is lost when a clean-up removes
the version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.names.ids import Position, TableVersion
from lancewal_core.store.json_object import JsonFault, JsonObject, is_whole, region_named
from lancewal_core.table.protocol import (
    PinnedTable,
    TransactionGone,
    TransactionInfo,
    TransactionUnreadable,
    fragment_files,
    fragment_rows,
)
from lancewal_core.table.watermarks import PROPERTY_MERGE
from lancewal_flusher.commit.facts import facts_of
from lancewal_flusher.context import FlusherContext

PROPERTY_KEY_REGIONS = "lancewal.key_regions"
VERSIONS_MAX = 1_000
"""Upper bound of the transactions that one search reads to find those that added files."""

Span = tuple[MergedFrom, int]
"""A region with its merged position, and the number of consecutive rows that came through it."""
Spans = Sequence[Span]


def region_properties(files: Mapping[str, Spans]) -> dict[str, str]:
    """Return transaction properties that record through which regions the rows of these files came.  ``files``: the
    spans of each file, by name.  Without files the result is empty.
    """
    if not files:
        return {}
    regions = list(dict.fromkeys(region for spans in files.values() for region, _ in spans))
    place = {region: at for at, region in enumerate(regions)}
    content = {
        "regions": [[r.region.name, r.position] for r in regions],
        "files": {name: [[place[r], rows] for r, rows in spans] for name, spans in sorted(files.items())},
    }
    return {PROPERTY_KEY_REGIONS: json.dumps(content, separators=(",", ":"))}


def divided(fragments: Sequence[str], counts: Spans) -> dict[str, Spans]:
    """Divide spans among the data files of new fragments.  Return the spans of each file, by name.  ``fragments``:
    JSON.  ``counts``: the spans of all rows of the fragments, in order."""
    found: dict[str, Spans] = {}
    left = [(region, rows) for region, rows in counts if rows]
    for fragment in fragments:
        (name,) = fragment_files(fragment)
        room, spans = fragment_rows(fragment), []
        while room:
            region, rows = left.pop(0)
            taken = min(rows, room)
            spans.append((region, taken))
            room -= taken
            if rows > taken:
                left.insert(0, (region, rows - taken))
        found[name] = spans
    return found


def find_spans(context: FlusherContext, pinned: PinnedTable, wanted: Mapping[str, int]) -> dict[str, Spans]:
    """Return the spans that transactions record for files, searching from ``pinned`` to older versions.  ``wanted``:
    for each file name the id of a fragment that has the file.

    After a restore the search continues at the restored version, because later versions are not part of this table
    version.  The search ends at a version that is gone, or after ``VERSIONS_MAX`` transactions.  It also ends below a
    merge that was computed before the oldest of these fragments existed.  A file that was not found is not searched
    for again, because no later commit will record it.
    """
    found: dict[str, Spans] = {}
    left = {name: fragment for name, fragment in wanted.items() if name not in context.files_without_origin}
    lowest = 0
    below: int = pinned.version
    for _ in range(VERSIONS_MAX):
        version = below
        if not left or version <= lowest:
            break
        info = context.table.transaction(version)
        if isinstance(info, TransactionGone):
            break
        below = version - 1
        if isinstance(info, TransactionUnreadable):
            continue
        if info.restored is not None:
            below = info.restored
        said = read_spans(info, version)
        found |= {name: spans for name, spans in said.items() if name in left}
        left = {name: fragment for name, fragment in left.items() if name not in said}
        if left and PROPERTY_MERGE in info.properties:
            facts = facts_of(info, TableVersion(version))
            if facts.fragments_below <= min(left.values()):
                lowest = max(lowest, facts.read_version)
    if left:
        context.files_without_origin.intersection_update({name for f in pinned.fragments() for name in f.files})
        context.files_without_origin.update(left)
    return found


def read_spans(info: TransactionInfo, version: int) -> Mapping[str, Spans]:
    """Read the spans, by file name, that one transaction records.  Raises ``ObjectCorrupt`` if they cannot be read."""
    text = info.properties.get(PROPERTY_KEY_REGIONS)
    if text is None:
        return {}
    try:
        content = JsonObject.parse(text)
        regions = [_region(item) for item in content.values("regions")]
        files = content.inner("files")
        return {name: [_span(item, regions) for item in files.values(name)] for name in files.members}
    except JsonFault as error:
        raise ObjectCorrupt(
            f"transaction of table version {version}: {PROPERTY_KEY_REGIONS} cannot be read: {error}", version=version
        ) from error


def _region(item: object) -> MergedFrom:
    match item:
        case [str(name), position] if is_whole(position):
            return MergedFrom(region_named(name), Position(position))
        case _:
            raise JsonFault("expected for each region its name and its merged position")


def _span(item: object, regions: Sequence[MergedFrom]) -> Span:
    match item:
        case [place, rows] if is_whole(place, high=len(regions) - 1) and is_whole(rows):
            return regions[place], rows
        case _:
            raise JsonFault("expected for each span the index of a region and a number of rows")


def expanded(spans: Spans, values: Mapping[MergedFrom, int], rows: int) -> npt.NDArray[np.int32] | None:
    """Return an array with one item for each row: the number that ``values`` gives for the row's region.  Return None
    if the spans do not have ``rows`` rows in all.
    """
    if sum(count for _, count in spans) != rows:
        return None
    counts = np.array([count for _, count in spans], np.int64)
    return np.repeat(np.array([values[region] for region, _ in spans], np.int32), counts)
