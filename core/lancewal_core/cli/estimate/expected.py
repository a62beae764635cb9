"""Requests of a deployment each second, its bytes each month, and their price.

The requests are how often each act comes, times the requests of the act.  Requests for rows of the table (``data/``,
``_deletions/``, ``_indices/``) are left out.  Their number follows from the size of the table and from what readers
read.

*Contention.*  A swap of a state page reads a version and puts the next one.  If two processes have read the same
version, the second put is refused, and its process reads again.  Swaps of a page are assumed to come independently of
each other, ``rate`` a second.  A swap whose answer takes ``window`` seconds meets no other with the probability
``exp(-rate * window)``, so it takes ``exp(rate * window)`` tries.  If several members have partitions of a page, the
version that a member knows is also out of date.  So a member's first try to seal is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lancewal_core.cli.estimate.counted import RequestCounts, Size, asked
from lancewal_core.cli.estimate.deployment import Deployment
from lancewal_core.cli.estimate.pace import (
    BUNDLE_SEGMENTS,
    BUNDLED_BYTES_MAX,
    PARTITIONS_PER_PAGE,
    READ,
    IngestPace,
    merges_per_s,
    pace,
    pages_of,
    read_size,
)
from lancewal_core.process.silence import STORE
from lancewal_core.settings.sections import FlusherSettings, TableSettings
from lancewal_core.store.object_store import ANSWER_OBJECTS
from lancewal_core.table.control import POLL_S

MONTH_S = 365 * 86_400 / 12
WRITTEN_PER_BYTE = 3.1
"""Bytes written for each byte of rows, beside the log: flushes, deletion vectors, key index, compaction.  Measured with
small upserts all over a large table (docs/benchmarks.md, write-amplification)."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a store, in the user's currency."""

    put: float = 0.005
    """Price of a thousand PUT, POST, COPY or LIST."""
    get: float = 0.0004
    """Price of a thousand GET or HEAD."""
    stored: float = 0.023
    """Price of a gigabyte (10^9 bytes) stored for a month."""
    fetched: float = 0.0
    """Price of a gigabyte that leaves the store."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Requests per second of each act; bytes and money per month."""

    pace: IngestPace
    by_act: Mapping[str, RequestCounts]
    page_tries: float
    """Average number of tries that one swap of a state page takes."""
    log_bytes: float
    """Bytes written to the log in a month."""
    table_bytes: float
    """Bytes written in a month to other objects than the log."""
    fetched_bytes: float
    """Bytes that readers fetch from the log in a month.  Rows of the table come on top."""
    history_bytes: float
    """Bytes of the log that are stored at a time, since entries stay for ``table.history_window_s``."""

    @property
    def per_s(self) -> RequestCounts:
        return sum(self.by_act.values(), RequestCounts())

    def money(self, prices: Prices) -> Mapping[str, float]:
        """Return the price of a month, by item."""
        asked = self.per_s
        return {
            "put_and_list": (asked.put + asked.list) * MONTH_S / 1_000 * prices.put,
            "get": asked.get * MONTH_S / 1_000 * prices.get,
            "history": self.history_bytes / 1e9 * prices.stored,
            "fetched": self.fetched_bytes / 1e9 * prices.fetched,
        }


def expected(wished: Deployment) -> Expected:
    """Return the requests and the storage that a deployment needs. Raises ``WishUnreachable`` as ``pace`` does."""
    at = pace(wished)
    bytes_per_s = wished.rows_per_s * wished.row_bytes
    return Expected(
        at,
        dict(_acts(wished, at)),
        tries(_swaps_per_s(wished, at), wished.latency_s),
        bytes_per_s * MONTH_S,
        bytes_per_s * MONTH_S * WRITTEN_PER_BYTE,
        bytes_per_s * MONTH_S * wished.readers,
        bytes_per_s * TableSettings().history_window_s,
    )


def tries(swaps_per_s: float, latency_s: float) -> float:
    """Return how many tries one swap of a page takes on average (module docstring).  A try reads the page, then puts
    it."""
    return math.exp(swaps_per_s * 2 * latency_s)


def _acts(wished: Deployment, at: IngestPace) -> Iterator[tuple[str, RequestCounts]]:
    """Yield each act with its requests a second, of all processes together."""
    segments_per_s = wished.members * at.segments_per_s
    yield "segments", RequestCounts(put=segments_per_s, delete=segments_per_s)
    if wished.member_rows_per_s / at.segments_per_s * wished.row_bytes <= BUNDLED_BYTES_MAX:
        bundles_per_s = segments_per_s / BUNDLE_SEGMENTS
        yield "bundles of segments", RequestCounts(put=bundles_per_s, delete=bundles_per_s)
    yield from _of_generations(wished, at)
    yield from _of_flusher(wished, at, segments_per_s)
    services = wished.members + 1
    yield "looks for a pause", asked("look for an operator's pause", _ANY) * (services / POLL_S)
    yield "looks for a contract", asked("look for another contract", _ANY) * (2 * wished.members / POLL_S)
    # By version 1 of the contract, which also says whether the table is there; a flusher asks for a newer one besides.
    yield "looks whether the table is there", RequestCounts(get=(services + 1) / STORE.ask_s)
    if wished.readers:
        reads_per_s = wished.readers / max(wished.read_every_s, at.read_s)
        yield "strong reads", asked(READ, read_size(wished)) * reads_per_s
        yield "segments that are read", RequestCounts(get=wished.readers * segments_per_s)


def _of_generations(wished: Deployment, at: IngestPace) -> Iterator[tuple[str, RequestCounts]]:
    acts_per_s = wished.members * seals_per_s(wished, at)
    size = _in_a_turn(wished, at)
    again = _again(wished, at) * size.pages
    yield "seals", (asked("seal all partitions", size) + again) * acts_per_s
    yield "flushes", (asked("flush all partitions", size) + again) * acts_per_s


def _in_a_turn(wished: Deployment, at: IngestPace) -> Size:
    """Return the number of partitions, and of their pages, that a member seals at once."""
    partitions = wished.member_partitions / at.turns
    return Size(partitions, min(pages_of(wished.partitions), math.ceil(partitions)), 1)


def _again(wished: Deployment, at: IngestPace) -> RequestCounts:
    """Return the requests of one swap of a page without the put that succeeds: refused puts, and the reads after
    them."""
    more = tries(_swaps_per_s(wished, at), wished.latency_s) - 1
    if wished.members > 1:
        more += 1
    return RequestCounts(get=2 * more, put=more)


def seals_per_s(wished: Deployment, at: IngestPace) -> float:
    """Return how many times a second one member seals.  Each time it seals one or more partitions together."""
    return at.turns / at.generation_s


def _swaps_per_s(wished: Deployment, at: IngestPace) -> float:
    """Return the swaps of one page, a second: seals and flushes of each of its members, and the flusher's swap after a
    merge."""
    members = min(wished.members, PARTITIONS_PER_PAGE, wished.partitions)
    turns_per_s = seals_per_s(wished, at)
    turns_per_s *= _in_a_turn(wished, at).pages / min(pages_of(wished.partitions), math.ceil(wished.member_partitions))
    return 2 * members * turns_per_s + merges_per_s(wished.members * seals_per_s(wished, at))


def _of_flusher(wished: Deployment, at: IngestPace, segments_per_s: float) -> Iterator[tuple[str, RequestCounts]]:
    flusher, pages = FlusherSettings(), pages_of(wished.partitions)
    sealed_per_s = wished.partitions / at.generation_s
    merging_per_s = merges_per_s(wished.members * seals_per_s(wished, at))
    merged = Size(sealed_per_s / merging_per_s, pages, wished.members)
    yield "merges", asked("merge round", merged) * merging_per_s
    whole = Size(wished.partitions, pages, wished.members)
    looks_per_s = max(0.0, 1 / flusher.merge_interval_s - merging_per_s)
    yield "looks for something to merge", asked("merge round, nothing to merge", whole) * looks_per_s
    garbage_per_s = 1 / flusher.gc_interval_s
    yield "garbage rounds", asked("garbage round, nothing to delete", whole) * garbage_per_s
    # Of what may be free, and an answer of each log that ends the look at it.
    yield (
        "listings of the log by garbage rounds",
        RequestCounts(list=segments_per_s / ANSWER_OBJECTS + wished.members * garbage_per_s),
    )


_ANY = Size(1, 1, 1)
