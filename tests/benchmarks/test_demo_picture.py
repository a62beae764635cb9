"""The picture of the README says what the demo's reader saw, and is a drawing."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from benchmarks.demo_picture import PICTURE, picture
from lancewal_demo.follower import Sight

SIGHTS = [
    Sight(100.0, 0.1, 1, 0, {}),
    Sight(101.0, 0.1, 1, 400, {"9000": 400}),
    Sight(102.0, 0.1, 3, 850, {"9000": 450}),
    Sight(103.0, 0.1, 4, 900, {"100": 30, "300": 20}),
    Sight(104.0, 0.1, 4, 1_000, {"100": 60, "700": 40}),
]
SVG = "{http://www.w3.org/2000/svg}"


def test_its_figures_are_those_of_the_live_part() -> None:
    drawn = ElementTree.fromstring(picture(SIGHTS))
    words = [found.text for found in drawn.iter(f"{SVG}text")]
    assert "Messages seen by 4 strong reads" in words
    assert "ticks: reads that met a newer version of the table (3 commits)" in words
    assert "150 rows: p50 100 ms, p99 700 ms" in words
    (line,) = drawn.iter(f"{SVG}polyline")
    places = [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)


def test_the_readme_shows_it() -> None:
    ElementTree.parse(PICTURE)
    readme = Path(__file__).resolve().parents[2] / "README.md"
    assert "(docs/demo.svg)" in readme.read_text()
