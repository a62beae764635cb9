"""Apicurio's registry, as ``apicurio.ivy.xml`` declares and ``apicurio.lock`` pins it."""

from __future__ import annotations

from pathlib import Path

from lancewal_demo.stack.maven_jars import JarSet

FILES = JarSet(
    "apicurio",
    Path(__file__).with_name("apicurio.ivy.xml").read_text(),
    Path(__file__).with_name("apicurio.lock"),
    "109 MB, once",
    alone=True,  # the description of its parent was never published
)


def apicurio() -> Path:
    """Return the jar that runs.  The first call on a machine takes some ten seconds."""
    (runner,) = FILES.folder().glob("*-runner.jar")
    return runner


if __name__ == "__main__":
    FILES.write_lock()
