"""Kafka's jars: resolved with the Ivy that PySpark carries, checked against ``kafka-jars.lock``, kept in the cache.

Ivy knows its default repository by itself.  The lock has one line ``sha256  file`` a jar (the format of sha256sum);
more, fewer or other files than it names are an error.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import time
from pathlib import Path

from lancewal_demo.stack import cache
from lancewal_demo.stack.java import find_java
from lancewal_demo.stack.processes import StackError, run_logged
from lancewal_demo.stack.trust_store import trust_options

_DEPENDENCIES = Path(__file__).with_name("kafka_jars.ivy.xml")
_LOCK = Path(__file__).with_name("kafka-jars.lock")


def kafka_jars() -> Path:
    """The folder with the jars; the first call on a machine takes about half a minute."""
    return cache.entry(f"kafka-jars-{cache.digest(_LOCK.read_text())}", _fetch)


def _fetch(folder: Path) -> None:
    started = time.monotonic()
    wanted = _locked()
    cache.progress(f"fetching Kafka's {len(wanted)} jars (44 MB, once, about 40 s)")
    _resolve(folder)
    found = _sums(folder)
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise StackError(f"These jars are not what {_LOCK.name} says: {', '.join(wrong)} (in {folder}).")
    cache.progress(f"Kafka's jars are in place after {time.monotonic() - started:.0f} s")


def _resolve(folder: Path) -> None:
    downloads = folder / "downloads"
    arguments: list[str | Path] = ["-cache", downloads, "-ivy", _DEPENDENCIES, "-confs", "default"]
    retrieve: list[str | Path] = ["-retrieve", folder / "[artifact]-[revision].[ext]"]
    java = find_java()
    trust = trust_options() if java.from_wheel else []
    run_logged(
        [java.program, *trust, "-jar", _ivy(), *arguments, *retrieve], folder / "ivy.log", "resolving Kafka's jars"
    )
    shutil.rmtree(downloads)


def _ivy() -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise StackError("pyspark is not installed: Kafka's jars are resolved with the Ivy that it carries.")
    found = sorted((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise StackError(f"no ivy-*.jar beside {pyspark.origin}: is this pyspark complete?")
    return found[-1]


def _locked() -> dict[str, str]:
    lines = (line.split() for line in _LOCK.read_text().splitlines())
    return {name: digest for digest, name in lines}


def _sums(folder: Path) -> dict[str, str]:
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in sorted(folder.glob("*.jar"))}


def _write_lock(folder: Path) -> None:
    _resolve(folder)
    _LOCK.write_text("".join(f"{digest}  {name}\n" for name, digest in _sums(folder).items()))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        _write_lock(Path(scratch))
