"""Versions of rows by the produced records and states alone: what the recipes of docs/how-to/keep-history.md must come to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa

from tests.support.pipeline import FIRST_MS, Key, Pipeline, Row

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "keep-history.md"
ADDRESS = "s3://bucket/orders"
Histories = dict[Key, list[Row]]
"""Versions of each key, oldest first: a row with ``valid_from`` and ``valid_to``."""

_EPOCH = datetime.fromtimestamp(0, UTC)


def section(heading: str, language: str = "python") -> str:
    """Return the code of one section of the page."""
    (text,) = re.findall(rf"^##+ {heading}\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (code,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    return str(code)


def unsteady_ms(partition: int, offset: int) -> int:
    """Return the time of a record, for ``Pipeline``: producers' clocks go back now and then."""
    return FIRST_MS + offset * 10 - 35 * (offset % 3)


def by_records(made: Pipeline, since: Sequence[int] | None = None, began: datetime | None = None) -> Histories:
    """Return a version for each record from the positions ``since`` on, and for each row that was there, as of ``began``."""
    found: Histories = {}
    for partition in range(made.contract.partitions):
        rows: dict[Key, Row] = {}
        start = 0 if since is None else since[partition]
        messages = made.messages(partition)
        for message in messages[:start]:
            made.fold(rows, message)
        for key, row in rows.items():
            found[key] = [{**row, "valid_from": began, "valid_to": None}]
        for offset in range(start, len(messages)):
            value = json.loads(messages[offset][1])
            key = value["region"], value["id"]
            before = rows.get(key)
            made.fold(rows, messages[offset])
            _step(found, key, before, rows.get(key), _time(made.record_ms(partition, offset)))
    return found


def by_states(states: Sequence[tuple[datetime, Mapping[Key, Row]]]) -> Histories:
    """Return a version for each state in which a row differs from the one before, as of the times that the states have."""
    found: Histories = {}
    last: Mapping[Key, Row] = {}
    for time, rows in states:
        for key in {**last, **rows}:
            if last.get(key) != rows.get(key):
                _step(found, key, last.get(key), rows.get(key), time)
        last = rows
    return found


def kept(table: pa.Table) -> Histories:
    """Return what a recipe has written.  The ``_sequence`` of a key's versions must grow."""
    found: Histories = {}
    for row in table.sort_by("_sequence").to_pylist():
        versions = found.setdefault((row["region"], row["id"]), [])
        assert not versions or versions[-1]["_sequence"] < row["_sequence"], f"a sequence came twice: {row}"
        versions.append(row)
    return {key: [{n: v for n, v in row.items() if n != "_sequence"} for row in rows] for key, rows in found.items()}


def commit_time(made: Pipeline) -> datetime:
    """Return when the newest version of the table was committed, in whole milliseconds."""
    newest = max(lance.dataset(made.uri).versions(), key=lambda version: version["version"])
    assert isinstance(newest["timestamp"], datetime)
    time = newest["timestamp"].astimezone(UTC)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def differing(found: Mapping[Key, object], expected: Mapping[Key, object]) -> Iterator[str]:
    """Yield how each key that differs does so."""
    for key in sorted({**found, **expected}):
        if found.get(key) != expected.get(key):
            yield f"{key}: {found.get(key)}, not {expected.get(key)}"


def _step(found: Histories, key: Key, before: Row | None, after: Row | None, time: datetime) -> None:
    if before is not None:
        found[key][-1]["valid_to"] = time
    if after is not None:
        found.setdefault(key, []).append({**after, "valid_from": time, "valid_to": None})


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
