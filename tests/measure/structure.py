"""Imports, circles, folders, classes and functions of the product.

A module that is loaded by its name as text (``importlib``) counts as imported: a string constant that is the name of a
module of the product, alone or before a colon, is such an import.  A name without a point is a word like any other.
Imports for type checkers do not count.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from pathlib import PurePosixPath

from tests.layering.source import imports
from tests.layering.test_parameters import with_many
from tests.measure.tree import part_of

FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"core"}),
    frozenset({"kafka"}),
    frozenset({"ingest", "flusher", "reader"}),
    frozenset({"tables", "audit", "demo"}),
    frozenset({"api"}),
)
"""The parts from bottom to top.  A part imports parts of its own floor and of the floors below."""


def modules(files: Mapping[str, str]) -> dict[str, str]:
    """Map each module's dotted name to its path.  The first folder of a path is the part and no package."""
    found = {}
    for name in files:
        parts = PurePosixPath(name).with_suffix("").parts[1:]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = name
    return found


def imported(files: Mapping[str, str]) -> dict[str, set[str]]:
    """Map each path to the paths that it imports, inside functions and by name too."""
    known = modules(files)
    found = {}
    for module, name in known.items():
        source = files[name]
        package = module if name.endswith("__init__.py") else module.rpartition(".")[0]
        names = {item.module for item in imports(source, package) if not item.typing}
        names |= {text.partition(":")[0] for text in _strings(source)}
        found[name] = {known[one] for one in names if one in known} - {name}
    return found


def _strings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            yield node.value


def circles(arrows: Mapping[str, Set[str]]) -> list[list[str]]:
    """Return the groups of paths that import one another, the largest first."""
    reached = {start: _reached(start, arrows) for start in arrows}
    groups: set[tuple[str, ...]] = set()
    for start in arrows:
        group = tuple(sorted(end for end in reached[start] if start in reached.get(end, ())))
        if group:
            groups.add(group)
    return sorted(map(list, groups), key=lambda group: (-len(group), group))


def _reached(start: str, arrows: Mapping[str, Set[str]]) -> set[str]:
    pending, seen = [start], set[str]()
    while pending:
        for end in arrows.get(pending.pop(), ()):
            if end not in seen:
                seen.add(end)
                pending.append(end)
    return seen


def arrows_upwards(arrows: Mapping[str, Set[str]]) -> list[tuple[str, str]]:
    """Return each pair of parts where the first imports the second and lies on a lower floor."""
    floor = {part: at for at, parts in enumerate(FLOORS) for part in parts}
    pairs = {(part_of(start), part_of(end)) for start, ends in arrows.items() for end in ends}
    return sorted((low, high) for low, high in pairs if floor[low] < floor[high])


def folders(files: Mapping[str, str]) -> dict[str, int]:
    """Map each folder to its number of entries: modules and folders, without ``__init__``."""
    found = defaultdict[str, set[str]](set)
    for name in files:
        path = PurePosixPath(name)
        for child, parent in zip([path, *path.parents], path.parents, strict=False):
            if parent != PurePosixPath(".") and child.name != "__init__.py":
                found[str(parent)].add(child.name)
    return {folder: len(entries) for folder, entries in found.items()}


def names_used_twice(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Map each public class name that several modules define to these modules' paths."""
    found = defaultdict[str, list[str]](list)
    for name, source in files.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}


def many_parameters(files: Mapping[str, str]) -> list[str]:
    """Return the functions with more than six parameters.  Constructors and commands may have more."""
    return [name for module, path in modules(files).items() for name in with_many(files[path], module)]
