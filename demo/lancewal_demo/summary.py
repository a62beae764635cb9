"""The result of a run, and its text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lancewal_core.cli.output import terms
from lancewal_demo.comparison import Comparison
from lancewal_demo.follower import percentile
from lancewal_demo.notices import Found
from lancewal_demo.producer import Sent
from lancewal_demo.stored import Stored

_PERCENTS = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Summary:
    backlog: Sent
    """Messages that were in Kafka before the services started."""
    caught_up_per_s: float | None
    """Messages of the backlog a second, until the reader saw them; None if the first read that saw any saw all."""
    live: Sent
    ages: Counter[int]
    """Freshness while the live part ran: numbers of rows by their age in ms at first sight."""
    reads: int
    """Number of strong reads of the follower."""
    stored: Stored
    notices: Found
    comparisons: tuple[Comparison, ...]
    seconds: float
    """Seconds that the whole run took."""

    @property
    def holds(self) -> bool:
        return all(comparison.holds for comparison in self.comparisons)


def summary_text(summary: Summary) -> str:
    """Return the summary as a few aligned lines."""
    sent, stored, notices = summary.backlog.messages + summary.live.messages, summary.stored, summary.notices
    input_bytes = summary.backlog.nbytes + summary.live.nbytes
    ages = [percentile(summary.ages, percent) for percent in _PERCENTS]
    fresh = ", ".join(
        f"p{percent} {'-' if age is None else f'{age:,} ms'}" for percent, age in zip(_PERCENTS, ages, strict=True)
    )
    live_rate = summary.live.messages / summary.live.seconds
    lines = {
        "messages": f"{sent:,} in {_size(input_bytes)} of keys and values",
        "catching up": "at once"
        if summary.caught_up_per_s is None
        else f"{summary.caught_up_per_s:,.0f} messages a second from Kafka to a strong read",
        "freshness": f"{fresh} from sending to a strong read, at {live_rate:,.0f} messages a second "
        f"({summary.ages.total():,} rows)",
        "strong reads": f"{summary.reads:,} by one reader, from the start of the services on",
        "notices": f"found by vector {_median(notices.by_vector_ms)}, by words {_median(notices.by_words_ms)} after they were "
        f"sent (medians); among {notices.merged:,} merged ones, {notices.hidden} of them replaced, and "
        f"{notices.unmerged} unmerged",
        "write-ahead log": f"{stored.segments:,} segments, {_size(stored.wal_bytes)}",
        "table": f"version {stored.table_version:,} after {stored.merges:,} merges of {stored.generations:,} "
        f"generations, {_size(stored.data_bytes)} of data files",
        "written": f"{stored.nbytes / input_bytes:.2f} bytes for each byte of input, all objects together",
        "time": f"{summary.seconds:.0f} s",
    }
    shown = terms(lines)
    verdict = "All comparisons hold." if summary.holds else "A COMPARISON FAILED."
    return "\n".join([*shown, "", *map(str, summary.comparisons), verdict])


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.0f} MB" if nbytes >= 1_000_000 else f"{nbytes / 1e3:,.0f} kB"


def _median(times_ms: Sequence[float]) -> str:
    return f"{median(times_ms):,.0f} ms" if times_ms else "-"
