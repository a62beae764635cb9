"""Make a virtual environment for each peer's lock, and fetch the jars of each peer on Spark, into the cache folder.

Both happen at the first use.  Each file is checked by its hash, jars at every use.  ``python -m
benchmarks.peers.fetch`` writes the locks of the jars again (``dev.py lock`` calls it).
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.engines import ENGINES, Engine
from lancewal_demo.stack import cache
from lancewal_demo.stack.maven_jars import JarSet
from lancewal_demo.stack.processes import run_logged

JARS = "BENCHMARK_PEERS_JARS"
"""Variable that names the folder of its jars to a peer's process."""
_DEPENDENCIES = """<ivy-module version="2.0">
  <info organisation="lancewal" module="peer"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="{}" name="{}" rev="{}" conf="default->default"/>
    <exclude module="scala-library"/>
  </dependencies>
</ivy-module>
"""
"""Spark has Scala itself, and leaves it out too where it resolves packages."""


def python_of(engine: Engine) -> Path:
    """The Python of the engine's environment; ``StackFailed`` if it cannot be made."""
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


def jars_of(engine: Engine) -> JarSet:
    """Of an engine in Spark."""
    dependencies = _DEPENDENCIES.format(*engine.package.split(":"))
    return JarSet(engine.name, dependencies, Path(__file__).with_name(f"{engine.name}-jars.lock"), "once")


def checked_jars(jars: JarSet) -> Path:
    """Their folder; ``StackFailed`` if one of them is not what the lock says, also where it was when they were fetched."""
    folder = jars.folder()
    jars.check(folder)
    return folder


if __name__ == "__main__":
    for engine in ENGINES.values():
        if engine.by_spark:
            jars_of(engine).write_lock()
