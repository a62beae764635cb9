"""Versions of rows by the produced records and states alone: what the recipes of docs/how-to/keep-history.md must come to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

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


def by_records(made: Pipeline) -> Histories:
    """Return a version for each record that leaves a row."""
    found: Histories = {}
    for partition in range(made.contract.partitions):
        rows: dict[Key, Row] = {}
        for offset, message in enumerate(made.messages(partition)):
            value = json.loads(message[1])
            key = value["region"], value["id"]
            before = rows.get(key)
            made.fold(rows, message)
            _step(found, key, before, rows.get(key), _time(made.record_ms(partition, offset)))
    return found


def kept(table: pa.Table) -> Histories:
    """Return what a recipe has written.  The ``_sequence`` of a key's versions must grow."""
    found: Histories = {}
    for row in table.sort_by("_sequence").to_pylist():
        versions = found.setdefault((row["region"], row["id"]), [])
        assert not versions or versions[-1]["_sequence"] < row["_sequence"], f"a sequence came twice: {row}"
        versions.append(row)
    return {key: [{n: v for n, v in row.items() if n != "_sequence"} for row in rows] for key, rows in found.items()}


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
