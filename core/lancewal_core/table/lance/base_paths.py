"""Base paths of a Lance table: other folders in which some of its files lie according to its manifest, as in a shallow
clone.

Anybody who can write a table's manifest could make it name any file that the table's readers may read.  Reads would
show that file's rows, and compaction would copy them into the table's folder.  So a table with a base path outside
its own folder is refused, unless the caller that opens it allows such paths.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from lancewal_core.errors import BasePathsRefused
from lancewal_core.store.address import local_folder, split_address

BasePaths: TypeAlias = Literal["refuse", "allow"]
"""Handling of a table with base paths outside its own folder: ``refuse`` to open it, or ``allow`` it."""

_PLAIN = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._=-]+)*/?")
"""Pattern of the rest of a base path after the table's own folder: plain names, without ``.`` and ``..``."""
_SHOWN = 3


def check_base_paths(dataset: Any, uri: str) -> None:
    """Raise ``BasePathsRefused`` if files of the data set at ``uri`` may lie outside its folder."""
    outside = sorted(base.path for base in dataset.base_paths().values() if not _inside(base.path, uri))
    branched, tree, name = _canonical(uri).partition("/tree/")
    if outside and tree and all(_inside(path, branched) for path in outside):
        raise BasePathsRefused(
            f"{uri} is a branch of the table at {branched}, and not a table of lancewal. If it is a snapshot, read that table "
            f"at the point snapshot:{name}",
            version=dataset.version,
        )
    if outside:
        raise BasePathsRefused(
            f"version {dataset.version} of {uri} says that some of its files lie in other folders: "
            f"{', '.join(repr(path[:200]) for path in outside[:_SHOWN])}. If it is a shallow clone of a table that you trust, "
            "set table.base_paths (LANCEWAL_TABLE__BASE_PATHS), or the argument or option base_paths, to 'allow'",
            version=dataset.version,
        )


def _inside(path: str, uri: str) -> bool:
    root = _canonical(uri)
    found = _canonical(path)
    return found.startswith(root) and _PLAIN.fullmatch(found[len(root) :]) is not None


def _canonical(uri: str) -> str:
    parts = split_address(uri)
    folder = local_folder(uri)
    return str(folder) if folder is not None else f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
