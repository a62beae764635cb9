"""The README's figures of ingest and freshness are those of the results that ``docs/benchmarks.md`` shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def figures(benchmark: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"benchmarks/results/{benchmark}.json").read_text())["figures"]
    return found


def test_the_readme_has_the_kept_figures() -> None:
    ingest, freshness = figures("ingest"), figures("freshness")
    peak = max(value for name, value in ingest.items() if name.endswith("_peak_rss_mib"))
    readme = (ROOT / "README.md").read_text()
    texts = [f"| {peak:.0f} MiB |", f"| {freshness['p50_ms']:,.0f} / {freshness['p99_ms']:,.0f} ms |"]
    for kind in ("upserts", "mixed"):
        ratio, rows_per_s = ingest[f"{kind}_ratio"], ingest[f"{kind}_rows_per_s"]
        texts.append(f"{ratio:.2f} of its speed ({rows_per_s:,.0f} rows/s)")
    assert [text for text in texts if text not in readme] == []
