"""The second act: notices to passengers, with an embedding each, found as they arrive.

Notices are made from the flights.  Their embeddings need no model: each word has its own direction, and the embedding of a
notice is the sum of the directions of its words.  Most notices are sent and merged first.  Then further ones arrive one by
one, and some replace an earlier one.  Each is searched by its own embedding or words until it is the best result.  At the
end, searches must give the results that numpy and DuckDB find by comparing all present notices.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import yaml

from lancewal_demo.comparison import Comparison, compare
from lancewal_demo.expected import NO_EXTENSIONS
from lancewal_demo.feed import SENT_AT, Feed, Message
from lancewal_demo.producer import FlightProducer, make_topics
from lancewal_demo.progress import Bar
from lancewal_demo.services import Services
from lancewal_demo.stack import StackFailed

if TYPE_CHECKING:
    from lancewal_reader.table import Table

TOPIC = "notices"
BEFORE, LIVE = 1_000, 20
WIDTH = 32
_NEAREST = 10
_SEEN_S = 60.0
_EVENTS = ("gate has changed", "boarding is late", "baggage is at another belt", "seats are full", "bring a coat")
_CANCELLED = "is cancelled"
_SOUGHT = "baggage belt"

Texts = Mapping[int, str]
"""The present text of each notice, by its id."""


@dataclass(frozen=True, slots=True)
class Found:
    """Results of the searches while notices arrived."""

    by_vector_ms: Sequence[float]
    """Times in ms from sending a notice until a search by its embedding found it; ``by_words_ms`` likewise by words."""
    by_words_ms: Sequence[float]
    merged: int
    """Number of merged notices that the last search looked at; ``hidden`` of them were replaced by newer ones."""
    hidden: int
    unmerged: int
    comparisons: tuple[Comparison, ...]


@cache
def _direction(word: str) -> npt.NDArray[np.float64]:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(WIDTH)


def embedding(text: str) -> list[float]:
    """Return the embedding of a text: the sum of its words' directions, scaled to length 1."""
    total = np.sum([_direction(word) for word in text.split()], axis=0)
    return [round(float(value), 6) for value in total / np.linalg.norm(total)]


def texts_of(feed: Feed) -> list[str]:
    """Return the texts of notices about the first flights of the feed; no two are the same."""
    return [
        f"{flight['carrier']}{flight['flight']} from {flight['origin']} to {flight['dest']}: "
        f"{_EVENTS[number % len(_EVENTS)]}, notice n{number}"
        for number, flight in enumerate(feed.flights.slice(0, BEFORE + LIVE).to_pylist())
    ]


def find_notices(folder: Path, servers: str, feed: Feed, bar: Bar) -> Found:
    """Make a table of notices in the new folder ``folder``, search while notices arrive, and return the results.

    All started services are stopped at the end.  ``bar`` shows the number of notices found."""
    folder.mkdir()
    table, texts = folder / "table", dict(enumerate(texts_of(feed)))
    live = [texts.popitem() for _ in range(min(LIVE, len(texts) // 2))]
    make_topics(servers, {TOPIC: 1, f"{TOPIC}.dead-letters": 1})
    with Services(folder, _write_settings(folder / "settings.yaml", table, servers, len(texts))) as services:
        services.run_command("create", "table", "create")
        producer = FlightProducer(servers, TOPIC)
        producer.send([_message(*notice) for notice in texts.items()], lambda _: None)
        services.start_service("ingest", "ingest", "run")
        services.start_service("flusher", "flusher", "run")

        from lancewal_reader.table import open_table

        opened = open_table(str(table))
        merged = lambda: opened.count_rows(consistency="eventual") == len(texts)  # noqa: E731
        services.wait_until(merged, "merging the first notices", _SEEN_S)
        waited: tuple[list[float], list[float]] = ([], [])
        for number, (id, text) in enumerate(live):
            if number % 4 > 1:  # once by vector and once by words an earlier one is replaced
                id = number
                text = f"{texts[id].partition(':')[0]} {_CANCELLED}, notice n{id}, anew"
            texts[id] = text
            asked: dict[str, Any] = {"text": text} if number % 2 else {"vector": embedding(text)}
            begin = time.monotonic()
            producer.send([_message(id, text)], lambda _: None)
            _wait_first(services, lambda asked=asked: opened.search(**asked, limit=1, columns=["text"]), text)  # type: ignore[misc] # no type for a default
            waited[number % 2].append((time.monotonic() - begin) * 1e3)
            bar.update(number + 1)
        found = _compared(opened, texts, waited)
        services.stop("ingest")
        services.stop("flusher")
    return found


def _wait_first(services: Services, search: Callable[[], Any], text: str) -> None:
    until = time.monotonic() + _SEEN_S
    while search().to_arrow()["text"].to_pylist() != [text]:
        services.check()
        if time.monotonic() > until:
            raise StackFailed(f"the notice {text!r} was not found within {_SEEN_S:g} s")


def _compared(opened: Table, texts: Texts, waited: tuple[Sequence[float], Sequence[float]]) -> Found:
    query = embedding(f"{_SOUGHT} {_CANCELLED}")
    near = opened.search(query, limit=_NEAREST, columns=["id"])
    told = opened.search(text=_SOUGHT, limit=len(texts), columns=["id"])
    covered = near.coverage
    comparisons = (
        compare("search by vector, the nearest, with numpy", _nearest(texts, query), near.to_arrow()),
        compare("search by words, all with one of them, with DuckDB", _with_words(texts), told.to_arrow()),
    )
    merged = covered.flat_rows + covered.indexed_rows
    return Found(*waited, merged, covered.masked_rows, covered.fresh_rows, comparisons)


def _nearest(texts: Texts, query: Sequence[float]) -> pa.Table:
    stored = np.array([embedding(text) for text in texts.values()], np.float32)
    order = np.argsort(((stored - np.array(query)) ** 2).sum(axis=1), kind="stable")[:_NEAREST]
    return pa.table({"id": pa.array(np.array([*texts])[order], pa.int64())})


def _with_words(texts: Texts) -> pa.Table:
    import duckdb

    notices = pa.table({"id": pa.array(texts.keys(), pa.int64()), "text": list(texts.values())})
    words = "|".join(_SOUGHT.split())
    with duckdb.connect(config=NO_EXTENSIONS) as connection:
        connection.register("notices", notices)
        found = connection.sql(rf"SELECT id FROM notices WHERE regexp_matches(text, '\b({words})\b')")
        return found.to_arrow_table()


def _message(id: int, text: str) -> Message:
    return Message(0, json.dumps(id).encode(), "upsert", {"id": id, "text": text, "embedding": embedding(text)})


def _write_settings(place: Path, table: Path, servers: str, before: int) -> Path:
    settings: dict[str, Any] = {
        "table": {
            "uri": str(table),
            "topic": TOPIC,
            "columns": {
                "id": "int64",
                "text": "string",
                "embedding": f"fixed_size_list<float32>[{WIDTH}]",
                SENT_AT: "timestamp[ms, UTC]",
            },
            "primary_key": ["id"],
            "region_key": ["id"],
        },
        "kafka": {"bootstrap_servers": servers},
        # What was sent before is merged at once; what arrives behind it stays unmerged.
        "ingest": {"seal_rows": before},
        "flusher": {"merge_interval_s": 0.5, "merge_defer_s": 0},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    place.write_text(yaml.safe_dump(settings, sort_keys=False))
    return place
