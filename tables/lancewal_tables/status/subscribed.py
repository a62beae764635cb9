"""Subscriptions of a table, for its status: how far behind each consumer is, and which subscriptions cannot be read.

A table without subscriptions costs one request.  Otherwise each subscription is checked as its own commit would check
it.
"""

from __future__ import annotations

from lancewal_core.errors import Corrupt, LancewalError, OutsideHistoryWindow, VersionGone
from lancewal_core.process.status.report import SubscriptionStatus
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.subscriptions.needs import Bounds, Needs, look
from lancewal_core.table.subscriptions.stored import StoredSubscription
from lancewal_core.table.subscriptions.subscriptions import read_stored

_NO_MARGIN = Bounds(margin_ms=0)


def subscriptions_of(opened: OpenedTable, now_ms: int) -> tuple[tuple[SubscriptionStatus, ...], list[str]]:
    """Return the subscriptions that can be read, by name, and the problems of the others."""
    try:
        stored = read_stored(opened)
    except Corrupt as error:
        return (), [_problem(error, "the list of subscriptions cannot be read")]
    problems = [
        _problem(found, f"subscription {name} cannot be read, so garbage collection keeps all that it may need")
        for name, found in stored.items()
        if not isinstance(found, StoredSubscription)
    ]
    readable = [found for found in stored.values() if isinstance(found, StoredSubscription)]

    def one(found: StoredSubscription) -> SubscriptionStatus | str:
        try:
            age = look(opened, Needs.of(found))
        except (OutsideHistoryWindow, VersionGone):
            return SubscriptionStatus(found.name, found.version, found.committed_at_ms, None, False)
        except LancewalError as error:
            return _problem(error, f"the lag of subscription {found.name} is not known")
        lag_ms = 0 if age.merged_ms is None else max(now_ms - age.merged_ms, 0)
        holds = age.held(opened.contract, now_ms, _NO_MARGIN)
        return SubscriptionStatus(found.name, found.version, found.committed_at_ms, lag_ms / 1000, holds)

    looked = opened.tasks.map(one, readable) if readable else []
    problems += [text for text in looked if isinstance(text, str)]
    return tuple(status for status in looked if not isinstance(status, str)), problems


def _problem(error: LancewalError, text: str) -> str:
    return f"{text}: {error.kind}: {error}"
