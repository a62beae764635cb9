"""Azurite, Microsoft's emulator of Azure Storage: installed once from npm, kept in the cache.

``azurite_npm/package-lock.json`` pins every package by version and hash.  The blob service alone calls neither telemetry nor
clients of databases, so ``package.json`` replaces those packages by an empty one: 190 packages are left of 450.

``python -m lancewal_demo.stack.clouds.azurite`` writes the lock file again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from lancewal_demo.stack import cache
from lancewal_demo.stack.clouds.node import OLDEST_NODE, Node, installed_node
from lancewal_demo.stack.processes import StackFailed, run_logged
from lancewal_demo.stack.trust_store import machine_bundle

SOURCE = Path(__file__).with_name("azurite_npm")
LOCK = SOURCE / "package-lock.json"

_OPTIONS = ("--ignore-scripts", "--omit=dev", "--omit=optional", "--no-audit", "--no-fund", "--no-update-notifier")


def azurite() -> Path:
    """Return the script of the blob service.  The first call on a machine installs it, in about ten seconds."""
    return cache.entry(_entry(), _install) / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def find_node() -> Node:
    """Return the Node.js of ``installed_node``; ``StackFailed`` if there is none."""
    node = installed_node()
    if node is None:
        raise StackFailed(
            f"No Node.js {OLDEST_NODE} or newer with npm on the PATH to run Azurite.  Install one, or let dev.py take a "
            f"wheel: pip install --require-hashes -r requirements-node.lock"
        )
    return node


def _entry() -> str:
    return f"azurite-{cache.digest((SOURCE / 'package.json').read_text() + LOCK.read_text())}"


def _install(folder: Path) -> None:
    started = time.monotonic()
    cache.progress("installing Azurite (60 MB, once, about ten seconds)")
    shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
    _npm(folder, "ci")
    shutil.rmtree(folder / "npm")
    cache.progress(f"Azurite is in place after {time.monotonic() - started:.0f} s")


def _npm(folder: Path, command: str) -> None:
    node = find_node()
    # npm's scripts look for a node on the PATH.
    environment = {"PATH": os.pathsep.join([str(node.program.parent), os.environ.get("PATH", os.defpath)])}
    bundle = machine_bundle()
    if bundle is not None and "NODE_EXTRA_CA_CERTS" not in os.environ:
        environment["NODE_EXTRA_CA_CERTS"] = str(bundle)  # Node.js trusts its own authorities alone
    arguments: list[str | Path] = [node.program, node.npm, command, "--prefix", folder, *_OPTIONS]
    arguments += ["--cache", folder / "npm", "--omit-lockfile-registry-resolved"]
    run_logged(arguments, folder / "npm.log", "installing Azurite", environment=environment)


def _write_lock() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
        (folder / LOCK.name).unlink(missing_ok=True)
        _npm(folder, "install")
        lock = json.loads((folder / LOCK.name).read_text())
    for package in lock["packages"].values():
        package.pop("funding", None)
    LOCK.write_text(json.dumps(lock, indent=1) + "\n")


if __name__ == "__main__":
    _write_lock()
