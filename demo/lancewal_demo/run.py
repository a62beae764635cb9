"""The demonstration, step by step.

1. Prepare the input: the CSV file, the feed made from it, and the results that DuckDB expects.
2. Start a Kafka broker, make the topics and the table, and send most of the feed before anything reads it.
3. Catch up: start ingest, flusher and a reader that follows, and wait until the reader sees all messages.
4. Live: send the rest at a steady rate, while the reader measures the freshness of the rows.
5. Read the table by ``lancewal_reader`` and by Spark, while rows are still in the write-ahead log; compare with DuckDB.
6. Stop ingest, which hands everything over, let the flusher merge it, and compare the table as plain Lance reads it.
7. Send notices with embeddings to a table of their own, and find them by vector and by words as they arrive.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lancewal_demo.comparison import Comparison, compare
from lancewal_demo.expected import expected_by_carrier, expected_rows
from lancewal_demo.feed import Feed, first_live
from lancewal_demo.flights import write_flights
from lancewal_demo.follower import Sight, Sights
from lancewal_demo.notices import LIVE, find_notices
from lancewal_demo.producer import PARTITIONS, FlightProducer, Sent, make_topics
from lancewal_demo.progress import Bar, Display
from lancewal_demo.services import Services, write_settings
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stored import look_at
from lancewal_demo.summary import Summary

TOPIC = "flights"
DEAD_LETTERS = f"{TOPIC}.dead-letters"
_LOOK_S = 0.5
_CAUGHT_UP_S = 240.0
_MERGED_S = 120.0


@dataclass(frozen=True, slots=True)
class Options:
    flights: int | None
    """Use only this many flights, from the first; None: all."""
    live_messages_per_s: float


@dataclass(frozen=True, slots=True)
class _Input:
    feed: Feed
    live_from: int
    """Number of the first message of the live part."""
    rows: pa.Table
    """The rows that the table must have in the end."""
    by_carrier: pa.Table
    """The delays by carrier that Spark must compute."""


def run_demo(folder: Path, options: Options, display: Display) -> Summary:
    """Run the demonstration in ``folder``, which must be empty, and return the summary.  All services are stopped then."""
    started = time.monotonic()
    # Step 1
    display.step("reading the flights")
    given = _read_input(folder / "flights.csv", options)
    feed, live_from = given.feed, given.live_from
    # Step 2
    display.step("starting Kafka")
    logs, table = folder / "logs", folder / "table"
    logs.mkdir()
    with KafkaBroker(folder / "kafka") as broker:
        make_topics(broker.bootstrap_servers, {TOPIC: PARTITIONS, DEAD_LETTERS: 1})
        settings = write_settings(folder / "settings.yaml", table, broker.bootstrap_servers, TOPIC, len(feed))
        with Services(logs, settings) as services:
            services.run_command("create", "table", "create")
            display.step("filling the topic")
            producer = FlightProducer(broker.bootstrap_servers, TOPIC)
            backlog = producer.send(feed.messages(0, live_from), display.bar("waiting in Kafka", live_from).update)
            # Step 3
            display.step("starting ingest, flusher and a reader, which catch up")
            services.start_service("ingest", "ingest", "run")
            services.start_service("flusher", "flusher", "run")
            services.start_follower(table, folder / "sights.jsonl")
            sights = Sights(folder / "sights.jsonl")
            _wait_visible(services, sights, display.bar("seen by the reader", live_from), 0, live_from)
            caught_up = _messages_per_s(sights.all)
            # Step 4
            display.step(f"live: {options.live_messages_per_s:,.0f} messages a second")
            live_started = time.time()
            live = _send_live(producer, given, services, sights, display, options)
            services.end("follower")
            # Step 5
            display.step("comparing a strong read with DuckDB")
            comparisons = [compare("strong read, before everything is merged", given.rows, _strong_read(table))]
            display.step("comparing Spark with DuckDB")
            found = services.run_spark(table, folder / "by_carrier.jsonl")
            spark_rows = pa.Table.from_pylist(found, given.by_carrier.schema)
            comparisons.append(compare("Spark, delays by carrier", given.by_carrier, spark_rows))
            # Step 6
            display.step("stopping ingest, merging the rest")
            services.stop("ingest")
            services.wait_until(lambda: _all_merged(services), "merging everything", _MERGED_S)
            services.stop("flusher")
        # Step 7
        display.step("notices with embeddings, found as they arrive")
        bar = display.bar("notices: found", min(LIVE, len(feed.flights) // 2))
        found_notices = find_notices(folder / "notices", broker.bootstrap_servers, feed, bar)
    display.step("comparing the merged table, read by plain Lance, with DuckDB")
    comparisons += [_compare_lance(given.rows, table), *found_notices.comparisons]
    return Summary(
        backlog=backlog,
        caught_up_per_s=caught_up,
        live=live,
        ages=sights.ages_after(live_started),
        reads=len(sights.all),
        stored=look_at(table),
        notices=found_notices,
        comparisons=tuple(comparisons),
        seconds=time.monotonic() - started,
    )


def _read_input(csv: Path, options: Options) -> _Input:
    write_flights(csv, options.flights)
    feed = Feed.read(csv)
    return _Input(feed, first_live(len(feed)), expected_rows(csv), expected_by_carrier(csv))


def _messages_per_s(sights: list[Sight]) -> float | None:
    """Return the messages a second from the first read that saw any to the newest read; None if they are the same read."""
    first = next(sight for sight in sights if sight.visible)
    last = sights[-1]
    return (last.visible - first.visible) / (last.at - first.at) if last.visible > first.visible else None


def _send_live(
    producer: FlightProducer, given: _Input, services: Services, sights: Sights, display: Display, options: Options
) -> Sent:
    """Send the live part at its rate, and wait until a read has seen all of it."""
    start, stop = given.live_from, len(given.feed)
    sent = display.bar("live: sent", stop - start)
    visible = display.bar("live: seen", stop - start)
    look = _seldom(lambda: _look(services, sights, visible, start))

    def tick(count: int) -> None:
        sent.update(count)
        look()

    done = producer.send(given.feed.messages(start, stop), tick, options.live_messages_per_s)
    _wait_visible(services, sights, visible, start, stop)
    return done


def _seldom(act: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls ``act`` at most once every ``_LOOK_S`` seconds, however often it is called itself."""
    due = time.monotonic()

    def perhaps() -> None:
        nonlocal due
        if time.monotonic() >= due:
            act()
            due = time.monotonic() + _LOOK_S

    return perhaps


def _look(services: Services, sights: Sights, bar: Bar, start: int) -> None:
    services.check()
    bar.update(max(0, sights.visible() - start))


def _wait_visible(services: Services, sights: Sights, bar: Bar, start: int, stop: int) -> None:
    def all_visible() -> bool:
        _look(services, sights, bar, start)
        return sights.visible() >= stop

    services.wait_until(all_visible, "seeing all messages", _CAUGHT_UP_S)


def _strong_read(table: Path) -> pa.Table:
    from lancewal_reader.table import open_table

    return open_table(str(table)).to_arrow()


def _all_merged(services: Services) -> bool:
    """Return whether the table has merged all records that Kafka has."""
    return all(found["merged"] == found["end"] or not found["end"] for found in services.status()["partitions"])


def _compare_lance(expected: pa.Table, table: Path) -> Comparison:
    import lance

    return compare("plain Lance, everything merged", expected, lance.dataset(str(table)).to_table())
