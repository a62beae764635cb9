"""Options of changes and streams: what they mean, and what contradicts what."""

from __future__ import annotations

import pytest

from lancewal_core.errors import InvalidInput
from lancewal_reader.spark.feed_options import Bound, CommittedBy, FeedOptions
from lancewal_reader.spark.options import COUNT, parse_options

_TIME, _MS = "2026-01-31T00:00:00", 1_769_817_600_000


def parsed(**options: str) -> FeedOptions:
    found = parse_options({"table": "/t", **options}).feed
    assert found is not None
    return found


def test_options_of_a_state_ask_for_no_changes() -> None:
    assert parse_options({"table": "/t"}).feed is None
    assert parse_options({"table": "/t", "at": "version:7", "filter": "a > 1"}).feed is None


@pytest.mark.parametrize(
    ("options", "mode", "start", "end"),
    [
        ({"start": "version:3"}, "net", "version:3", "now"),
        ({"Start": " earliest ", "END": "version:9", "changes": "ALL"}, "all", "earliest", "version:9"),
        ({"startingVersion": "5"}, "commits", "version:4", "now"),
        ({"startingVersion": "1"}, "commits", "earliest", "now"),
        ({"startingversion": "5", "startingBoundInclusive": "False"}, "commits", "version:5", "now"),
        ({"STARTING_VERSION": "5", "endingVersion": "9"}, "commits", "version:4", "version:9"),
        (
            {"startingVersion": "5", "endingVersion": "9", "endingBoundInclusive": "false"},
            "commits",
            "version:4",
            "version:8",
        ),
        ({"startingVersion": "5", "endingVersion": "5"}, "commits", "version:4", "version:5"),
        ({"startingVersion": "5", "deduplicationMode": "netChanges"}, "net", "version:4", "now"),
        ({"startingVersion": "5", "deduplicationMode": "dropCarryovers"}, "commits", "version:4", "now"),
        ({"start": "now", "deduplicationMode": "none", "changes": "commits"}, "commits", "now", "now"),
        ({"startingVersion": "5", "changes": "net"}, "net", "version:4", "now"),
        ({"startingVersion": "5", "end": "version:9"}, "commits", "version:4", "version:9"),
        ({"startingTimestamp": f"{_TIME}Z"}, "commits", _MS - 1, "now"),
        ({"startingTimestamp": f"{_TIME}.0005Z"}, "commits", _MS, "now"),
        ({"startingTimestamp": f"{_TIME}Z", "startingBoundInclusive": "false"}, "commits", _MS, "now"),
        ({"start": "version:3", "endingTimestamp": f"{_TIME}.0005Z"}, "net", "version:3", _MS),
        ({"start": "now", "endingTimestamp": f"{_TIME}Z", "endingBoundInclusive": "false"}, "net", "now", _MS - 1),
        ({"start": "now", "endingTimestamp": "2026-01-31T02:00:00+02:00"}, "net", "now", _MS),
    ],
)
def test_what_options_mean(options: dict[str, str], mode: str, start: str | int, end: str | int) -> None:
    def shown(bound: Bound) -> str | int:
        return bound.ms if isinstance(bound, CommittedBy) else str(bound)

    found = parsed(**options)
    assert (found.changes, shown(found.start), shown(found.end)) == (mode, start, end)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"changes": "net"},
            "option start is missing: option changes asks for changes. Set .*. Or set option subscription",
        ),
        ({"end": "version:3"}, "option start is missing"),
        ({"endingVersion": "3"}, "option start is missing"),
        ({"start": "now", "changes": "some"}, "use net, commits or all"),
        ({"start": "yesterday"}, "option start: .*not a receipt.*. 'now' is taken too, and as start also 'earliest'"),
        ({"start": "now", "end": "earliest"}, "option end=earliest"),
        ({"start": "now", "startingVersion": "3"}, "options start and startingVersion each say where changes start"),
        (
            {"startingVersion": "3", "startingTimestamp": f"{_TIME}Z"},
            "options startingVersion and startingTimestamp each say where changes start",
        ),
        (
            {"start": "now", "end": "now", "endingVersion": "3"},
            "options end and endingVersion each say where changes end",
        ),
        (
            {"start": "now", "changes": "net", "deduplicationMode": "none"},
            "options changes=net and deduplicationMode=none, which means changes=commits",
        ),
        ({"start": "now", "deduplicationMode": "all"}, "use none, dropCarryovers or netChanges"),
        ({"start": "now", "at": "version:3"}, "options start and at: at names one state"),
        ({"start": "now", "versionAsOf": "3"}, "options start and at"),
        ({"start": "now", "at_least": "orders-3-1841"}, "options start and at_least"),
        ({"changes": "net", "max_staleness_s": "3"}, "options changes and max_staleness_s"),
        ({"start": "now", "consistency": "eventual"}, "options start and consistency"),
        ({"startingVersion": "0"}, "option startingVersion='0': expected a table version"),
        ({"startingVersion": "latest"}, "expected a table version"),
        (
            {"startingVersion": "9", "endingVersion": "5"},
            "options startingVersion=9 and endingVersion=5: the end comes before",
        ),
        (
            {"startingTimestamp": f"{_TIME}Z", "endingTimestamp": "2026-01-30T00:00:00Z"},
            "options startingTimestamp=.* and endingTimestamp=.*: the end comes before",
        ),
        ({"startingTimestamp": _TIME}, "option startingTimestamp=.*: expected a time with its zone"),
        ({"start": "now", "endingVersion": "1", "endingBoundInclusive": "false"}, "no version lies before it"),
        (
            {"start": "now", "startingBoundInclusive": "true"},
            "startingBoundInclusive has a meaning only with startingVersion or startingTimestamp",
        ),
        ({"startingVersion": "3", "startingBoundInclusive": "no"}, "expected true or false"),
        ({"start": "now", "max_rows_per_trigger": "0"}, "expected a number of rows from 1 on"),
        ({"start": "now", COUNT: "true"}, "For changes, use count"),
    ],
)
def test_contradictions_name_both_options(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        parsed(**options)
