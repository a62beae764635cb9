"""The benchmark page of the docs, made from the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_ROWS: dict[str, list[tuple[str, str, str, str]]] = {
    "ingest": [
        ("upserts only: rows/s of ingest over rows/s of the floor", "upserts_ratio", "at least 0.6", ".2f"),
        ("the same without snapshot writes", "upserts_without_snapshots_ratio", "-", ".2f"),
        ("mixed (70 % upserts, 25 % patches, 5 % deletes) over the floor", "mixed_ratio", "at least 0.4", ".2f"),
        ("the same without snapshot writes", "mixed_without_snapshots_ratio", "-", ".2f"),
        ("ingest, upserts only, rows/s", "upserts_rows_per_s", "-", ",.0f"),
        ("floor, upserts only, rows/s", "upserts_floor_rows_per_s", "-", ",.0f"),
        ("ingest, mixed, rows/s", "mixed_rows_per_s", "-", ",.0f"),
        ("peak resident memory, upserts, MiB", "upserts_peak_rss_mib", "at most the budget (512) + 300", ",.0f"),
        ("peak resident memory, mixed, MiB", "mixed_peak_rss_mib", "at most the budget (512) + 300", ",.0f"),
    ],
    "freshness": [
        ("p50, ms", "p50_ms", "-", ",.0f"),
        ("p95, ms", "p95_ms", "-", ",.0f"),
        ("p99, ms", "p99_ms", "at most 500", ",.0f"),
        ("rows never seen", "rows_unseen", "0", ",.0f"),
        ("scans", "scans", "-", ",.0f"),
        ("table versions made meanwhile", "table_version", "-", ",.0f"),
    ],
    "strong-read": [
        ("all columns: strong read over plain Lance scan", "all_ratio", "at most 2", ".2f"),
        ("three columns: strong read over plain Lance scan", "three_ratio", "at most 6", ".2f"),
        ("all columns, table opened anew for the read", "all_first_ratio", "-", ".2f"),
        ("three columns, table opened anew for the read", "three_first_ratio", "-", ".2f"),
        ("plain scan, all columns, s", "all_plain_s", "-", ".3f"),
        ("plain scan, three columns, s", "three_plain_s", "-", ".3f"),
    ],
}


def write_page(results: Path, page: Path) -> None:
    """One table for each benchmark that has a result."""
    lines = [
        "# Benchmarks",
        "",
        "Made by `python3 dev.py bench`; what each one does stands in its module under `benchmarks/`.  Speed is given as",
        "ratios inside one run, against a floor or a peer; absolute figures are there for orientation.",
    ]
    for name, rows in _ROWS.items():
        file = results / f"{name}.json"
        if not file.exists():
            continue
        content: dict[str, Any] = json.loads(file.read_text())
        machine = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in content["machine"].items())
        lines += ["", f"## {name}", "", f"Measured on: {machine}.", "", "| measure | value | aim |", "|---|---|---|"]
        for text, key, aim, form in rows:
            lines.append(f"| {text} | {format(content['figures'][key], form)} | {aim} |")
    page.write_text("\n".join(lines) + "\n")
