"""Options of changes and of streams: lancewal's, and those of Spark's own ``changes()`` with Spark's meaning.

Spark's bounds are inclusive: ``startingVersion=5`` wants what version 5 changed, so the changes start at version 4.
A bound in time means the newest version committed before that time, or for an inclusive end, at or before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lancewal_core.errors import InvalidInput
from lancewal_core.process.clock import moment_of
from lancewal_reader.changes.feed import MODES, Mode
from lancewal_reader.changes.follow import ROWS_MAX
from lancewal_reader.point.at import At, point_of

FEED_OPTIONS: dict[str, str] = {
    "changes": "what changed instead of rows: net, each key at most once; commits, net from each table version to the next; "
    "or all, each record",
    "start": "where changes start: a point as in at, earliest (the empty table) or now",
    "subscription": "in place of start: the name of a subscription, where changes start; a stream commits to it",
    "end": "where changes end: a point or now (default); a stream has no end",
    "max_rows_per_trigger": "most records, or rows of the first snapshot, that a stream reads in one batch (default 1000000)",
}
SPARKS_FEED_OPTIONS = (
    "startingVersion",
    "endingVersion",
    "startingTimestamp",
    "endingTimestamp",
    "startingBoundInclusive",
    "endingBoundInclusive",
    "deduplicationMode",
)
"""Options of Spark's ``changes()`` that are accepted with the same meaning."""
_STARTS, _ENDS = SPARKS_FEED_OPTIONS[0:4:2], SPARKS_FEED_OPTIONS[1:4:2]
_DEDUPLICATED: dict[str, Mode] = {"none": "commits", "dropcarryovers": "commits", "netchanges": "net"}
_OF_STATES = ("at", "at_least", "max_staleness_s")
"""Options that say which state is read, and not which changes."""
_EPOCH = datetime.fromtimestamp(0, UTC)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class CommittedBy:
    """The newest version committed at or before a time, in milliseconds since 1970."""

    ms: int
    option: str
    """Name of the option that gave the time."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The receipt of a subscription."""

    name: str


Bound = str | CommittedBy | Subscribed


@dataclass(frozen=True, slots=True)
class FeedOptions:
    changes: Mode
    start: Bound
    """A point as text, ``earliest``, ``now``, a time of commit, or a subscription."""
    end: Bound
    rows_max: int
    of_batch: str | None
    """Name of an option that only a batch has, if one was given."""
    of_stream: str | None
    """Name of an option that only a stream has, if one was given."""


def feed_options(found: Mapping[str, str]) -> FeedOptions | None:
    """Return the options of a change feed; None if the options ask for a state.

    Raises ``InvalidInput`` if an option is malformed or missing, or if two contradict each other.
    """
    given = [name for name in (*FEED_OPTIONS, *SPARKS_FEED_OPTIONS) if name in found]
    if not given:
        return None
    for name in _OF_STATES:
        if name in found:
            raise InvalidInput(
                f"options {given[0]} and {name}: {name} names one state, and changes lie between two. Leave one of "
                "them out"
            )
    if found.get("consistency", "strong").lower() != "strong":
        raise InvalidInput(
            f"options {given[0]} and consistency: changes are always read with strong consistency. Leave consistency "
            "out; changes=commits gives the changes of merged rows alone"
        )
    starts = [name for name in ("start", "subscription", *_STARTS) if name in found]
    ends = [name for name in ("end", *_ENDS) if name in found]
    for names, what in ((starts, "start"), (ends, "end")):
        if len(names) > 1:
            raise InvalidInput(f"options {names[0]} and {names[1]} each say where changes {what}: give one of them")
    if not starts:
        raise InvalidInput(
            f"option start is missing: option {given[0]} asks for changes. Set start to 'now', to 'earliest' (the empty "
            "table), or to a point as in option at. Or set option subscription"
        )
    for name, of in (("startingBoundInclusive", _STARTS), ("endingBoundInclusive", _ENDS)):
        if name in found and not any(other in found for other in of):
            raise InvalidInput(f"option {name} has a meaning only with {of[0]} or {of[1]}: give one of them too")
    first, last = starts[0], ends[0] if ends else "end"
    options = FeedOptions(
        _mode(found, first in _STARTS),
        _bound(found, first),
        _bound(found, last),
        _rows_max(found),
        last if ends else None,
        "max_rows_per_trigger" if "max_rows_per_trigger" in found else None,
    )
    versions = (first, last) == (_STARTS[0], _ENDS[0]) and _version(found, last) < _version(found, first)
    times = (first, last) == (_STARTS[1], _ENDS[1]) and _time(found, last) < _time(found, first)
    if versions or times:
        raise InvalidInput(f"options {first}={found[first]} and {last}={found[last]}: the end comes before the start")
    return options


def _mode(found: Mapping[str, str], by_spark: bool) -> Mode:
    text, deduplicated = found.get("changes"), found.get("deduplicationMode")
    mode = next((known for known in MODES if text is not None and text.strip().lower() == known), None)
    if text is not None and mode is None:
        raise InvalidInput(f"option changes={text!r} is unknown: use net, commits or all")
    if deduplicated is not None:
        asked = _DEDUPLICATED.get(deduplicated.strip().lower())
        if asked is None:
            raise InvalidInput(
                f"option deduplicationMode={deduplicated!r} is unknown: use none, dropCarryovers or netChanges"
            )
        if mode not in (None, asked):
            raise InvalidInput(
                f"options changes={mode} and deduplicationMode={deduplicated}, which means changes={asked}: give one of them"
            )
        return asked
    return mode or ("commits" if by_spark else "net")


def _point(found: Mapping[str, str], name: str) -> str:
    text = found.get(name, "now").strip()
    if text == "earliest" and name == "end":
        raise InvalidInput("option end=earliest: nothing lies before it. Give a point, or now")
    if text not in ("now", "earliest"):
        try:
            point_of(text)
        except InvalidInput as error:
            raise InvalidInput(f"option {name}: {error}. 'now' is taken too, and as start also 'earliest'") from error
    return text


def _bound(found: Mapping[str, str], name: str) -> Bound:
    """Return the state at which changes start or end, as the option ``name`` says."""
    if name == "subscription":
        return Subscribed(found[name].strip())
    if name not in (*_STARTS, *_ENDS):
        return _point(found, name)
    starts = name in _STARTS
    before = _inclusive(found, "startingBoundInclusive" if starts else "endingBoundInclusive") == starts
    if name in (_STARTS[1], _ENDS[1]):
        return CommittedBy(_ms(found, name, before=before), name)
    version = _version(found, name) - before
    if version:
        return str(At.version(version))
    if starts:
        return "earliest"
    raise InvalidInput(f"options {name}=1 and endingBoundInclusive=false: no version lies before it")


def _inclusive(found: Mapping[str, str], name: str) -> bool:
    text = found.get(name, "true").strip().lower()
    if text not in ("true", "false"):
        raise InvalidInput(f"option {name}={found[name]!r}: expected true or false")
    return text == "true"


def _version(found: Mapping[str, str], name: str) -> int:
    return _number(found, name, "a table version, an integer from 1 on")


def _time(found: Mapping[str, str], name: str) -> timedelta:
    moment = moment_of(found[name].strip())
    if moment is None:
        raise InvalidInput(f"option {name}={found[name]!r}: expected a time with its zone, as in 2026-01-31T00:00:00Z")
    return moment - _EPOCH


def _ms(found: Mapping[str, str], name: str, *, before: bool) -> int:
    """Return the last whole millisecond that is not after a time, or with ``before`` the last one before the time."""
    time = _time(found, name)
    return -(-time // _MS) - 1 if before else time // _MS


def _rows_max(found: Mapping[str, str]) -> int:
    name = "max_rows_per_trigger"
    return _number(found, name, "a number of rows from 1 on") if name in found else ROWS_MAX


def _number(found: Mapping[str, str], name: str, expected: str) -> int:
    text = found[name].strip()
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise InvalidInput(f"option {name}={found[name]!r}: expected {expected}")
    return int(text)
