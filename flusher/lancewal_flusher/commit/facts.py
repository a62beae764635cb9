"""Facts about a merge that its own transaction records, so that finishing the merge (``merge.finish``) needs no older
version.

Properties beside the watermarks

* ``lancewal.read_version``: the version that the merge was computed from.  A rebase changes the transaction's own
  read version.
* ``lancewal.fragments_below``: all fragments of that version have lower ids; Lance never uses an id again.
* ``lancewal.files``: names of the data files that the merge adds, as a JSON list.
* ``lancewal.adopted``: per region the data files that the merge took from a flush as they were, as JSON.  A file with
  rows of several regions is listed with each of them, since all lose rows with it.
* ``lancewal.generations``: per region the first and the last generation that the merge takes, as JSON.
* ``lancewal.rows_adopted``, ``lancewal.rows_replaced``: numbers of rows, for people.
* ``lancewal.settled``: only if a person has decided about keys in conflict (``settle``), as JSON: the ``region``
  whose records count, the number of ``keys``, ``dropped`` (by region, how many keys lost their waiting records), and
  ``before``, the object of keys in conflict that the decision replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Region, TableVersion
from lancewal_core.store.json_object import JsonFault, JsonObject, is_whole, parse_value, region_named
from lancewal_core.table.conflicts_ref import PROPERTY_SETTLED, ConflictsRef, parse_ref
from lancewal_core.table.protocol import TransactionInfo
from lancewal_core.table.watermarks import PROPERTY_READ_VERSION

_FRAGMENTS_BELOW = "lancewal.fragments_below"
_FILES = "lancewal.files"
_ADOPTED = "lancewal.adopted"
_GENERATIONS = "lancewal.generations"
_ROWS_ADOPTED = "lancewal.rows_adopted"
_ROWS_REPLACED = "lancewal.rows_replaced"


@dataclass(frozen=True, slots=True)
class KeyDecision:
    """A person's decision about keys in conflict: the members of ``lancewal.settled`` in the module docstring."""

    region: Region
    keys: int
    dropped: Mapping[Region, int]
    before: ConflictsRef

    def to_json(self) -> str:
        dropped = {region.name: keys for region, keys in sorted(self.dropped.items())}
        content = {"region": self.region.name, "keys": self.keys, "dropped": dropped, "before": self.before.members()}
        return json.dumps(content, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> KeyDecision:
        content = JsonObject.parse(text)
        dropped = content.inner("dropped")
        return KeyDecision(
            region_named(content.text("region")),
            content.whole("keys"),
            {region_named(name): dropped.whole(name) for name in dropped.members},
            parse_ref(content.inner("before")),
        )


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """Facts about a merge; the module docstring explains each."""

    read_version: TableVersion
    fragments_below: int
    files: frozenset[str]
    adopted: Mapping[Region, frozenset[str]]
    """Names of the adopted data files by region; of each region one generation was adopted.  They are recorded
    because a region state may later name a rebuilt flush instead."""
    generations: Mapping[Region, tuple[Generation, Generation]]
    rows_adopted: int
    rows_replaced: int
    settled: KeyDecision | None = None

    def properties(self) -> dict[str, str]:
        """Return the facts as transaction properties."""
        return {
            PROPERTY_READ_VERSION: str(self.read_version),
            _FRAGMENTS_BELOW: str(self.fragments_below),
            _FILES: json.dumps(sorted(self.files)),
            _ADOPTED: json.dumps({region.name: sorted(files) for region, files in sorted(self.adopted.items())}),
            _GENERATIONS: json.dumps({region.name: list(g) for region, g in sorted(self.generations.items())}),
            _ROWS_ADOPTED: str(self.rows_adopted),
            _ROWS_REPLACED: str(self.rows_replaced),
            **({} if self.settled is None else {PROPERTY_SETTLED: self.settled.to_json()}),
        }


def facts_of(info: TransactionInfo, version: TableVersion) -> MergeFacts:
    """Read the facts of a merge from its transaction.  Raises ``ObjectCorrupt`` if they cannot be read."""
    try:
        properties = info.properties
        settled = properties.get(PROPERTY_SETTLED)
        adopted, generations = JsonObject.parse(properties[_ADOPTED]), JsonObject.parse(properties[_GENERATIONS])
        return MergeFacts(
            TableVersion(_whole(properties[PROPERTY_READ_VERSION])),
            _whole(properties[_FRAGMENTS_BELOW]),
            _names(parse_value(properties[_FILES])),
            {region_named(name): _names(adopted.values(name)) for name in adopted.members},
            {region_named(name): _first_and_last(generations.values(name)) for name in generations.members},
            _whole(properties[_ROWS_ADOPTED]),
            _whole(properties[_ROWS_REPLACED]),
            None if settled is None else KeyDecision.parse(settled),
        )
    except (KeyError, JsonFault) as error:
        raise ObjectCorrupt(
            f"transaction of table version {version}: the facts of its merge cannot be read: {error}",
            version=version,
        ) from error


def _whole(text: str) -> int:
    found = parse_value(text)
    if not is_whole(found):
        raise JsonFault(f"{text[:60]!r} is not a number of versions, fragments or rows")
    return found


def _names(values: object) -> frozenset[str]:
    if not isinstance(values, list) or not all(
        isinstance(value, str) and paths.is_data_file(value) for value in values
    ):
        raise JsonFault("expected a list of names of data files")
    return frozenset(values)


def _first_and_last(values: list[object]) -> tuple[Generation, Generation]:
    match values:
        case [first, last] if is_whole(first, 1) and is_whole(last, first):
            return Generation(first), Generation(last)
        case _:
            raise JsonFault("expected the first and the last generation of each region, from 1 on")
