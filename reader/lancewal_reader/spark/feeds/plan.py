"""Plans of feeds on the driver: the ends that options name, and the tasks of a state that is read as inserts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lancewal_core.errors import InvalidInput
from lancewal_core.process.clock import utc_text
from lancewal_reader.changes.feed import Feeds
from lancewal_reader.plan.at_timestamp import version_at
from lancewal_reader.point.at import At, AtVersion
from lancewal_reader.reading.reads import Planned
from lancewal_reader.spark.feed_options import Bound, FeedOptions, Subscribed
from lancewal_reader.spark.options import SparkOptions
from lancewal_reader.spark.plain_errors import plain_errors
from lancewal_reader.spark.source import PinnedRead, pinned_read
from lancewal_reader.subscriptions import Subscriptions, losses_named


@contextmanager
def feed_errors(asked: FeedOptions) -> Iterator[None]:
    """Shorten errors to one line for Spark's users.  If a subscription has lost data that the feed needs, the line
    names the subscription.
    """
    with plain_errors(), losses_named(asked.start.name if isinstance(asked.start, Subscribed) else None):
        yield


def bound_of(feeds: Feeds, bound: Bound, *, start: bool = False) -> str | AtVersion:
    """Return a start or end in the form that ``Feeds.plan`` accepts.  ``start``: whether a time before the first
    version is allowed.
    """
    if isinstance(bound, str):
        return bound
    if isinstance(bound, Subscribed):
        return Subscriptions(feeds.reads).get(bound.name).receipt
    context = feeds.reads.context
    if bound.ms > context.clock.now_ms():
        raise InvalidInput(f"option {bound.option}: {utc_text(bound.ms)} is in the future")
    if start and min(context.table.versions()) == 1 and context.table.commit_time(1) > bound.ms:
        return "earliest"
    return At.version(version_at(context, bound.ms).version)


def inserts_of(options: SparkOptions, feeds: Feeds, state: Planned) -> PinnedRead:
    """Return a read of a planned state, with its columns and filter, whose rows become inserts."""
    wanted = replace(options, columns=state.chosen.columns, filter=state.chosen.filter)
    return pinned_read(wanted, feeds.reads, state)
