"""A virtual environment for each lock of the peers, in the cache folder; made at the first use, each file checked by its hash.

Spark fetches the Maven packages of a peer by itself, at the start of its session, into a folder beside these: checked by the
checksums that the repository gives, not by ours.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.engines import Engine
from lancewal_demo.stack import cache
from lancewal_demo.stack.processes import run_logged

IVY = "BENCHMARK_PEERS_IVY"
"""Variable that names Spark's folder for Maven packages to a peer's process."""


def python_of(engine: Engine) -> Path:
    """The Python of the engine's environment; ``StackError`` if it cannot be made."""
    lock = Path(__file__).with_name(engine.lock)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"

    def fill(folder: Path) -> None:
        cache.progress(f"fetching what {engine.lock} names (once)")
        log = folder / "fetch.log"
        run_logged([sys.executable, "-m", "venv", folder], log, f"making an environment for {engine.name}")
        pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install")
        run_logged([*pip, "--require-hashes", "--no-deps", "-r", lock], log, f"fetching {engine.name}")

    name = f"peer-{cache.digest(python + lock.read_text())}"
    return cache.entry(name, fill) / "bin" / "python"


def ivy_folder() -> Path:
    return cache.cache_directory() / "peers-ivy"
