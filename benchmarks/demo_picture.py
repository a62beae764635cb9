"""``python -m benchmarks.demo_picture DIR``: draw what the demo's reader saw into ``docs/demo.svg``.

DIR is the folder of ``lancewal demo --keep DIR``.  Its ``sights.jsonl`` has a line for each strong read of the follower.  The
left panel has the messages that reads saw over time, with a tick for each read that met a newer version
of the table.  The right panel has the ages of rows at first sight in the live part.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lancewal_demo.feed import first_live
from lancewal_demo.follower import Sight, Sights, percentile

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "demo.svg"
WIDTH, HEIGHT = 860, 300
LEFT, RIGHT = (70.0, 470.0), (560.0, 830.0)
TOP, BOTTOM = 60.0, 235.0
BINS = 30
BLUE, GREY, INK = "#2563eb", "#9ca3af", "#1f2937"


def main(folder: Path) -> None:
    sights = Sights(folder / "sights.jsonl")
    sights.visible()
    PICTURE.write_text(picture(sights.all))


def picture(sights: Sequence[Sight]) -> str:
    """The whole drawing."""
    total = sights[-1].visible
    live_from = first_live(total)
    ages: Counter[int] = Counter()
    for sight in sights:
        if sight.visible > live_from:
            ages.update({int(age): count for age, count in sight.ages.items()})
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" '
        f'fill="{INK}" role="img">',
        f"<title>{total:,} messages of the demo, as strong reads saw them</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *seen(sights, total, live_from),
        *freshness(ages),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def seen(sights: Sequence[Sight], total: int, live_from: int) -> list[str]:
    """Messages over time, and the versions of the table below."""
    start = next((sight.at for sight in sights if sight.visible), sights[0].at)
    shown = [sight for sight in sights if sight.at >= start]
    seconds = max(shown[-1].at - start, 1e-9)

    def place(sight: Sight) -> tuple[float, float]:
        x = LEFT[0] + (sight.at - start) / seconds * (LEFT[1] - LEFT[0])
        return x, BOTTOM - sight.visible / total * (BOTTOM - TOP)

    live_y = BOTTOM - live_from / total * (BOTTOM - TOP)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, shown))
    versions = [now for before, now in itertools.pairwise(shown) if now.version > before.version]
    commits = shown[-1].version - shown[0].version
    return [
        text(LEFT[0], 24, f"Messages seen by {len(shown):,} strong reads", bold=True),
        text(LEFT[0], 42, f"ticks: reads that met a newer version of the table ({commits:,} commits)", colour=GREY),
        *axes(LEFT, f"{seconds:.0f} s"),
        text(LEFT[0] - 6, TOP + 4, f"{total / 1e6:.2f} M" if total >= 1_000_000 else f"{total:,}", anchor="end"),
        f'<line x1="{LEFT[0]}" y1="{live_y:.1f}" x2="{LEFT[1]}" y2="{live_y:.1f}" stroke="{GREY}" stroke-dasharray="3 4"/>',
        text(LEFT[1], live_y - 6, "live from here", anchor="end", colour=GREY),
        text(LEFT[1], live_y + 16, "catching up until here", anchor="end", colour=GREY),
        f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2"/>',
        *(
            f'<line x1="{x:.1f}" y1="{BOTTOM}" x2="{x:.1f}" y2="{BOTTOM - 8}" stroke="{INK}"/>'
            for x, _ in map(place, versions)
        ),
    ]


def freshness(ages: Counter[int]) -> list[str]:
    """Ages of rows at first sight: bars, the median and the 99th percentile."""
    median, late = percentile(ages, 50) or 0, percentile(ages, 99) or 0
    end = max(late * 1.15, 1.0)
    counts = [0] * BINS
    for age, count in ages.items():
        if age < end:
            counts[int(age / end * BINS)] += count
    width = (RIGHT[1] - RIGHT[0]) / BINS
    bars = []
    for number, count in enumerate(counts):
        height = count / max(*counts, 1) * (BOTTOM - TOP)
        x = RIGHT[0] + number * width
        bars.append(
            f'<rect x="{x:.1f}" y="{BOTTOM - height:.1f}" width="{width - 1:.1f}" height="{height:.1f}" fill="{BLUE}"/>'
        )
    return [
        text(RIGHT[0], 24, "From sending to a strong read, live", bold=True),
        text(RIGHT[0], 42, f"{ages.total():,} rows: p50 {median:,} ms, p99 {late:,} ms", colour=GREY),
        *bars,
        *axes(RIGHT, f"{end / 1000:.1f} s"),
    ]


def axes(panel: tuple[float, float], end: str) -> list[str]:
    left, right = panel
    return [
        f'<line x1="{left}" y1="{BOTTOM}" x2="{right}" y2="{BOTTOM}" stroke="{INK}"/>',
        text(left, BOTTOM + 18, "0"),
        text(right, BOTTOM + 18, end, anchor="end"),
    ]


def text(x: float, y: float, words: str, *, anchor: str = "start", bold: bool = False, colour: str = INK) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{words}</text>'


if __name__ == "__main__":
    main(Path(sys.argv[1]))
