"""Rooms: the sub-packages of a part.  Each ``__init__`` is a map, and the maps hold.

1. A map's last sentence, ``May import: ...``, names exactly what the room imports of its own part: rooms, and modules at
   the top of the part.  An arrow that nothing uses any more is taken off the map.
2. Arrows between rooms, and between modules at the top, run in no circle.
3. A map names every entry of its folder, and nothing that is not there.  It has at most ten lines above the arrows.
4. A folder has at most fourteen entries (about twelve are aimed at).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.layering.source import ROOT, RULES, imports_of, modules

PARTS = [part for part in RULES if part.startswith("lancewal_") and part != "lancewal_demo"]
ENTRIES_MAX, LINES_MAX = 14, 10
UNMAPPED = frozenset({"lancewal_core.names.proto"})
"""Generated code imports nothing of ours."""
NOTHING = "nothing of this package"
A_MODULE_EACH = "each in its own module"
"""So says the map of a room of commands: its modules are called as the commands are."""
NO_ENTRIES = frozenset({"lancewal", "main"})
"""What maps name beside entries of a folder: the program, and a program's entry."""

Arrows = set[tuple[str, str]]


def rooms(part: str) -> dict[str, Path]:
    """Dotted name -> folder, the part itself among them."""
    return {name: file.parent for name, file in modules(part).items() if file.name == "__init__.py"}


def entries(folder: Path) -> set[str]:
    left_out = {"__init__.py", "__pycache__", "py.typed"}
    return {path.stem for path in folder.iterdir() if path.name not in left_out and path.suffix in ("", ".py")}


def map_of(folder: Path) -> tuple[str, set[str] | None]:
    """The map without its arrows, and these; None if it has none."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    above, found, arrows = text.partition("\n\nMay import: ")
    if not found:
        return above, None
    named = " ".join(arrows.split()).removesuffix(".")
    return above, set() if named == NOTHING else set(named.split(", "))


def node(part: str, name: str, known: dict[str, Path]) -> str | None:
    """The room of a module, or the module itself where it lies at the top; None: the part itself, or no name of ours."""
    while name and name not in known:
        name = name.rpartition(".")[0]  # a class or a function of that module
    if name in ("", part):
        return None
    room = name if known[name].name == "__init__.py" else name.rpartition(".")[0]
    return (name if room == part else room).removeprefix(f"{part}.")


def arrows_of(part: str) -> Arrows:
    known = modules(part)
    arrows = set()
    for module, file in known.items():
        start = node(part, module, known)
        for imported in imports_of(module, file):
            end = node(part, imported.module, known) if imported.top == part else None
            if start and end and start != end:
                arrows.add((start, end))
    return arrows


def circles(arrows: Arrows) -> set[str]:
    """What lies on a circle, or between two."""
    left = set(arrows)
    while True:
        starts, ends = {start for start, _ in left}, {end for _, end in left}
        kept = {(start, end) for start, end in left if start in ends and end in starts}
        if kept == left:
            return starts
        left = kept


def off_the_map(room: str, named: set[str], arrows: Arrows) -> list[str]:
    used = {end for start, end in arrows if start == room}
    return [
        *(f"{room} imports {end}, which its map does not allow" for end in sorted(used - named)),
        *(f"{room} may import {end} and does not: its map says too much" for end in sorted(named - used)),
    ]


@pytest.mark.parametrize("part", PARTS)
def test_the_maps_have_the_arrows_that_are_used(part: str) -> None:
    arrows = arrows_of(part)
    wrong = []
    for name, folder in rooms(part).items():
        if name == part or name in UNMAPPED:
            continue
        _, named = map_of(folder)
        if named is None:
            wrong.append(f"the map of {name} does not end with what it may import")
        else:
            wrong += off_the_map(name.removeprefix(f"{part}."), named, arrows)
    assert wrong == []


@pytest.mark.parametrize("part", PARTS)
def test_no_room_is_part_of_a_circle(part: str) -> None:
    assert circles(arrows_of(part)) == set()


@pytest.mark.parametrize("part", PARTS)
def test_a_map_names_what_is_there(part: str) -> None:
    wrong = []
    for name, folder in rooms(part).items():
        above, _ = map_of(folder)
        there = entries(folder)
        named = set(re.findall(r"``([a-z]\w*(?:\.\w+)?)``", above)) - NO_ENTRIES
        inner = {f"{inner.stem}.{file}" for inner in folder.iterdir() if inner.is_dir() for file in entries(inner)}
        wrong += [f"{name}: {gone} is on its map, not in its folder" for gone in sorted(named - there - inner)]
        if name not in UNMAPPED and A_MODULE_EACH not in above:
            unnamed = there - {entry.partition(".")[0] for entry in named}
            wrong += [f"{name}: {entry} is in its folder, not on its map" for entry in sorted(unnamed)]
        if len(above.splitlines()) > LINES_MAX:
            wrong.append(f"{name}: its map has more than {LINES_MAX} lines")
    assert wrong == []


@pytest.mark.parametrize("part", PARTS)
def test_a_folder_can_be_taken_in_at_a_glance(part: str) -> None:
    sizes = {name: len(entries(folder)) for name, folder in rooms(part).items()}
    wrong = {name: size for name, size in sizes.items() if size > ENTRIES_MAX}
    assert wrong == {}


def test_the_rules_about_rooms_are_seen_to_be_broken() -> None:
    arrows = {("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")}
    assert circles(arrows) == {"b", "c"}
    assert circles({("a", "b"), ("b", "c"), ("a", "c")}) == set()
    assert len(off_the_map("c", {"b"}, arrows)) == len(off_the_map("c", {"b", "d", "e"}, arrows)) == 1
    assert off_the_map("c", {"b", "d"}, arrows) == off_the_map("d", set(), arrows) == []


@pytest.mark.parametrize("part", PARTS)
def test_tests_lie_in_rooms_that_exist(part: str) -> None:
    """Techniques have folders of their own, beside those of the parts."""
    tests = ROOT / "tests" / part.removeprefix("lancewal_")
    tested = {file.parent.relative_to(tests) for file in tests.rglob("test_*.py")}
    folder = ROOT / RULES[part].folder / part
    assert tested
    assert [str(room) for room in sorted(tested) if not (folder / room / "__init__.py").is_file()] == []
