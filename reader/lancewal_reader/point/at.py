"""Points: the states of a table that a read may name by ``at``.

==================================================  ==================================================================
point                                               as text
==================================================  ==================================================================
a receipt                                           ``lw1.`` and what follows, or its JSON
``At.version(412)``, version of the merged table    ``version:412``
``At.positions({0: 120, 1: 88})``                   ``positions:0=120,1=88``
``At.timestamp(moment)``, what was durable then     ``timestamp:2026-01-31T00:00:00Z``
``At.record_time(moment)``, by Kafka's timestamps   ``record-time:2026-01-31T00:00:00Z``
``At.snapshot("eom")``                              ``snapshot:eom``
state of the table in a cut of a catalog            ``cut:june``
==================================================  ==================================================================

``cut:NAME`` is understood where the catalog is known (``lancewal_reader.cuts``).

The text of a point means the same on the command line, in Spark and in Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lancewal_core.errors import CutMissing, InvalidInput, LancewalError, VersionGone
from lancewal_core.names.ids import Position, TableVersion
from lancewal_core.names.words import FORM, is_word
from lancewal_core.process.clock import moment_of, utc_text
from lancewal_core.store.json_object import WHOLE_MAX
from lancewal_reader.forms.given_numbers import whole_of
from lancewal_reader.point.checked_text import PREFIX
from lancewal_reader.point.receipt import Receipt

_POSITION = re.compile(r"([0-9]{1,9})=([0-9]{1,19})", re.ASCII)
_PARTITION_MAX = (1 << 31) - 1
_SHOWN = 40
CUT = "cut:"
_EPOCH = datetime.fromtimestamp(0, UTC)
_MS = timedelta(milliseconds=1)


class At:
    """A point that is not a receipt; ``str()`` returns its text.

    ``At.version``, ``At.positions``, ``At.timestamp``, ``At.record_time`` and ``At.snapshot`` make one.
    """

    __slots__ = ()

    @staticmethod
    def version(number: int) -> AtVersion:
        """The merged table at its Lance version ``number``, without rows that were unmerged then.

        Raises ``InvalidInput`` unless ``number`` is an integer from 1.
        """
        found = whole_of(number, 1)
        if found is None:
            raise InvalidInput(f"At.version({number!r}): a table version is an integer from 1 to {WHOLE_MAX}")
        return AtVersion(TableVersion(found))

    @staticmethod
    def positions(by_partition: Mapping[int, int]) -> AtPositions:
        """The table with exactly the records below these positions, one position for each partition.  Positions between
        merges are allowed.

        A position is the offset of the next record, so position 0 leaves out all records of a partition.
        """
        given: object = by_partition
        items = given.items() if isinstance(given, Mapping) else ()
        found = [(whole_of(partition), whole_of(at)) for partition, at in items]
        known = sorted((p, at) for p, at in found if p is not None and p <= _PARTITION_MAX and at is not None)
        if not found or len(known) != len(found):
            raise InvalidInput(
                f"At.positions({by_partition!r:.{_SHOWN}}): expected the position of each partition, as in {{0: 120, 1: 88}}"
            )
        return AtPositions(tuple((partition, Position(at)) for partition, at in known))

    @staticmethod
    def timestamp(moment: datetime) -> AtTimestamp:
        """The rows that a strong read at this time would have seen, by the clocks of the ingest and flusher processes
        (``plan.at_timestamp``).
        """
        return AtTimestamp(_since_1970("timestamp", moment) // _MS)

    @staticmethod
    def record_time(moment: datetime) -> AtRecordTime:
        """The rows of each partition before its first row whose Kafka timestamp is at or after this time."""
        return AtRecordTime(-(-_since_1970("record_time", moment) // _MS))

    @staticmethod
    def snapshot(name: str) -> AtSnapshot:
        """The snapshot of this name."""
        if not is_word(name):
            raise InvalidInput(f"At.snapshot({name!r:.{_SHOWN}}): not a snapshot's name: {FORM}")
        return AtSnapshot(name)


@dataclass(frozen=True, slots=True)
class AtVersion(At):
    """A table version; made by ``At.version``."""

    number: TableVersion

    def __str__(self) -> str:
        return f"version:{self.number}"


@dataclass(frozen=True, slots=True)
class AtPositions(At):
    """Positions of all partitions; made by ``At.positions``."""

    by_partition: tuple[tuple[int, Position], ...]

    def __str__(self) -> str:
        return "positions:" + ",".join(f"{partition}={at}" for partition, at in self.by_partition)


@dataclass(frozen=True, slots=True)
class AtTimestamp(At):
    """A time by the clocks of lancewal's processes; made by ``At.timestamp``."""

    ms: int

    def __str__(self) -> str:
        return f"timestamp:{utc_text(self.ms)}"


@dataclass(frozen=True, slots=True)
class AtRecordTime(At):
    """A time by Kafka's timestamps; made by ``At.record_time``."""

    ms: int

    def __str__(self) -> str:
        return f"record-time:{utc_text(self.ms)}"


@dataclass(frozen=True, slots=True)
class AtSnapshot(At):
    """A snapshot; made by ``At.snapshot``."""

    name: str

    def __str__(self) -> str:
        return f"snapshot:{self.name}"


@dataclass(frozen=True, slots=True)
class AtCut(At):
    """State of one table in a cut, as read from the catalog."""

    name: str
    """Name of the cut."""
    number: int
    """Number of this publication of a moving cut; 1 for a kept cut."""
    table: str
    """Name of the table in the cut."""
    table_uuid: str
    receipt: Receipt
    kept_by: str | None
    """Name of the snapshot that keeps the state; None in a moving cut."""

    @property
    def point(self) -> Receipt | AtSnapshot:
        """The receipt or snapshot at which the table is read."""
        return self.receipt if self.kept_by is None else AtSnapshot(self.kept_by)

    def incomplete(self, why: object) -> CutMissing:
        """Return the error for a table of the cut that cannot be read."""
        return CutMissing(f"cut {self.name} is incomplete: its table {self.table} cannot be read. {why}", cut=self.name)

    def without_version(self, why: VersionGone) -> LancewalError:
        """Return the error for a table version that a plan needs and that is gone.  For a kept cut this is
        ``CutMissing``: the branch of its snapshot is incomplete.
        """
        return why if self.kept_by is None else self.incomplete(f"The snapshot {self.kept_by} is not whole: {why}")

    def __str__(self) -> str:
        return f"{CUT}{self.name}"


Point = Receipt | AtVersion | AtPositions | AtTimestamp | AtRecordTime | AtSnapshot | AtCut


def read_by(at: Point | None) -> Point | None:
    """Return the point itself; for a table in a cut, the receipt or snapshot at which it is read."""
    return at.point if isinstance(at, AtCut) else at


def point_of(at: Point | str | bytes | None) -> Point | None:
    """Parse a user's point.  Raises ``InvalidInput`` if it is not a point."""
    if at is None or isinstance(at, Point):
        return at
    if not isinstance(at, str | bytes):
        raise _no_point(at)
    text = at.strip() if isinstance(at, str) else at.decode(errors="replace").strip()
    kind, _, rest = text.partition(":")
    match kind:
        case "version":
            if not rest.isascii() or not rest.isdigit() or len(rest) > len(str(WHOLE_MAX)):
                raise InvalidInput(f"at={text[:_SHOWN]!r}: expected an integer after 'version:', as in version:412")
            return At.version(int(rest))
        case "positions":
            return _positions(text, rest)
        case "timestamp":
            return At.timestamp(_moment(text, rest))
        case "record-time":
            return At.record_time(_moment(text, rest))
        case "snapshot":
            return At.snapshot(rest)
        case "cut":
            raise no_catalog(text)
    if not text.startswith((PREFIX, "{")):
        raise InvalidInput(
            f"at={text[:_SHOWN]!r} is not a receipt, nor another point: give {PREFIX}..., version:412, positions:0=120,1=88, "
            "timestamp:2026-01-31T00:00:00Z, record-time:..., snapshot:NAME or cut:NAME"
        )
    return Receipt.parse(at)


def no_catalog(text: str) -> InvalidInput:
    """Return the error for ``cut:NAME`` without a catalog."""
    return InvalidInput(
        f"at={text[:_SHOWN]!r} names a cut, and no catalog is known here. For a command, set catalog.root. In Spark, give the "
        "option catalog. In Python, open the table by open_catalog(...).cut(NAME)[TABLE]"
    )


def _no_point(at: object) -> InvalidInput:
    if isinstance(at, datetime):
        return InvalidInput(
            "at is a datetime, which is not a point: give At.timestamp(...) or At.record_time(...) of it"
        )
    return InvalidInput(
        f"at={at!r:.{_SHOWN}} is not a point: give a receipt, At.version(412), or the text of one of them"
    )


def _moment(given: str, text: str) -> datetime:
    """Return the time of an ISO 8601 text with its zone.  Raises ``InvalidInput``, which shows ``given``, for any
    other text.
    """
    moment = moment_of(text.strip())
    if moment is None:
        raise InvalidInput(f"at={given[:_SHOWN]!r}: expected a time with its zone, as in 2026-01-31T00:00:00Z")
    return moment


def _positions(given: str, text: str) -> AtPositions:
    found = [_POSITION.fullmatch(part.strip()) for part in text.split(",")]
    by_partition = {int(one[1]): int(one[2]) for one in found if one is not None}
    if len(by_partition) != len(found):
        raise InvalidInput(
            f"at={given[:_SHOWN]!r}: expected the position of each partition, once, as in positions:0=120,1=88"
        )
    return At.positions(by_partition)


def _since_1970(name: str, moment: object) -> timedelta:
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidInput(f"At.{name}({moment!r:.{_SHOWN}}): expected a datetime with its zone")
    return moment - _EPOCH
