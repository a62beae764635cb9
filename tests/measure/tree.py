"""The files of a commit or of the working tree, as text."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("core", "ingest", "flusher", "tables", "reader", "audit", "kafka", "api")
"""The folders of the product, at any commit.  The demonstration is not one of them."""


def read_tree(commit: str | None = None) -> Mapping[str, str]:
    """Map each path to its text.  None reads the working tree without ignored files.  Binary files are left out.

    Raises ``LookupError`` if git does not know the commit.
    """
    if commit is None:
        listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0")
        contents = {name: (ROOT / name).read_bytes() for name in listed if name and (ROOT / name).is_file()}
    else:
        with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", commit))) as archive:
            opened = {member.name: archive.extractfile(member) for member in archive.getmembers()}
            contents = {name: content.read() for name, content in opened.items() if content is not None}
    found = {}
    for name, content in contents.items():
        try:
            found[name] = content.decode("utf-8")
        except UnicodeDecodeError:
            continue
    return found


def product(tree: Mapping[str, str]) -> dict[str, str]:
    """The Python files of the product, without generated code."""
    return {
        name: text
        for name, text in sorted(tree.items())
        if name.endswith(".py") and not name.endswith("_pb2.py") and part_of(name) in PARTS
    }


def part_of(name: str) -> str:
    """The part that a file belongs to: its first folder."""
    return name.partition("/")[0]


def git(*arguments: str) -> bytes:
    """Return what git prints.  Raises ``LookupError`` if git refuses, for example a commit that is not there."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True)
    if done.returncode:
        raise LookupError(done.stderr.decode(errors="replace").strip())
    return done.stdout
