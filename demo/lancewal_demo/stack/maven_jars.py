"""Jars of Maven packages and all that these depend on: resolved with the Ivy that PySpark carries, checked against a lock,
kept in the cache.

Ivy uses its default repository.  The lock has one line ``sha256  file`` for each jar (the format of sha256sum).  More,
fewer or other files than the lock names are an error.  A package may be an archive (``tar.gz``) in place of a jar: it is
unpacked once it was checked.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from lancewal_demo.stack import cache
from lancewal_demo.stack.java import find_java
from lancewal_demo.stack.processes import StackFailed, run_logged
from lancewal_demo.stack.trust_store import trust_options

_WITHOUT_DESCRIPTIONS = """<ivysettings>
  <settings defaultResolver="public"/>
  <resolvers><ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars to fetch.  ``dependencies``: text of an Ivy file; ``lock``: the file with the sums; ``size``: shown to the user.

    ``alone``: the files that are named and nothing that they depend on, whose descriptions are not even read."""

    name: str
    dependencies: str
    lock: Path
    size: str
    alone: bool = False

    def folder(self) -> Path:
        """Return the folder with the jars; the first call on a machine fetches them.

        ``StackFailed`` if they differ from the lock."""
        return cache.entry(f"{self.name}-jars-{cache.digest(self.lock.read_text())}", self._fetch)

    def check(self, folder: Path) -> None:
        """Raise ``StackFailed`` unless the folder has exactly the jars of the lock."""
        lines = (line.split() for line in self.lock.read_text().splitlines())
        wanted, found = {name: digest for digest, name in lines}, _sums(folder)
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        if wrong:
            raise StackFailed(f"These jars differ from {self.lock.name}: {', '.join(wrong)} (in {folder}).")

    def write_lock(self) -> None:
        """Write a new lock for the jars that the repository has now."""
        with tempfile.TemporaryDirectory() as scratch:
            self._resolve(Path(scratch))
            self.lock.write_text("".join(f"{digest}  {name}\n" for name, digest in _sums(Path(scratch)).items()))

    def _fetch(self, folder: Path) -> None:
        started = time.monotonic()
        count = len(self.lock.read_text().splitlines())
        cache.progress(f"fetching {count} jars of {self.name} ({self.size})")
        self._resolve(folder)
        self.check(folder)
        for archive in _files(folder, "*.tar.gz"):
            shutil.unpack_archive(archive, folder, filter="data")
            archive.unlink()
        cache.progress(f"jars of {self.name} are in place after {time.monotonic() - started:.0f} s")

    def _resolve(self, folder: Path) -> None:
        downloads, ivy_file = folder / "downloads", folder / "ivy.xml"
        ivy_file.write_text(self.dependencies)
        arguments: list[str | Path] = ["-cache", downloads, "-ivy", ivy_file, "-confs", "default"]
        if self.alone:
            settings = folder / "ivysettings.xml"
            settings.write_text(_WITHOUT_DESCRIPTIONS)
            arguments += ["-settings", settings]
        retrieve: list[str | Path] = ["-retrieve", folder / "[artifact]-[revision].[ext]"]
        java = find_java()
        trust = trust_options() if java.from_wheel else []
        act = f"resolving jars of {self.name}"
        run_logged([java.program, *trust, "-jar", _ivy(), *arguments, *retrieve], folder / "ivy.log", act)
        shutil.rmtree(downloads)


def _ivy() -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise StackFailed("pyspark is not installed: jars are resolved with the Ivy that it carries.")
    found = sorted((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise StackFailed(f"no ivy-*.jar beside {pyspark.origin}: is this pyspark complete?")
    return found[-1]


def _sums(folder: Path) -> dict[str, str]:
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in _files(folder, "*.jar", "*.tar.gz")}


def _files(folder: Path, *patterns: str) -> list[Path]:
    return sorted(file for pattern in patterns for file in folder.glob(pattern))
