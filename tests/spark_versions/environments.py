"""An environment with one PySpark and what lancewal's reader needs; lancewal itself is taken from this checkout.

They lie in the cache folder, by the version that PyPI gave; what is fetched is locked by versions alone, and reads tables made
here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from lancewal_demo.stack import cache
from lancewal_demo.stack.java import spark_java_home
from lancewal_demo.stack.processes import run_logged

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "core", "reader", "flusher", "tables", "kafka")
OLDEST, NEWEST = "4.0", "4"
"""The first with Python data sources, and the last: each by its newest release."""


@dataclass(frozen=True, slots=True)
class Environment:
    """``version`` of PySpark, and the folder of its environment."""

    version: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def spark_home(self) -> Path:
        (home,) = self.folder.glob("lib/python*/site-packages/pyspark")
        return home

    def variables(self, folder: Path) -> dict[str, str]:
        """For every process of a run in ``folder``: driver, server, cluster, and what they start."""
        return {
            "JAVA_HOME": str(spark_java_home()),
            "SPARK_HOME": str(self.spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in (*PACKAGES, ".")),
        }


def environment_of(version: str) -> Environment:
    """By a version, or the beginning of one (``4.0``): then its newest release."""
    exact = version if re.fullmatch(r"\d+\.\d+\.\d+\S*", version) else _newest(version)
    wanted = [f"pyspark[connect]=={exact}", *reader_needs()]

    def fill(folder: Path) -> None:
        cache.progress(f"fetching PySpark {exact} (once)")
        log = folder / "fetch.log"
        run_logged([sys.executable, "-m", "venv", folder], log, f"making an environment for PySpark {exact}")
        pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        run_logged([*pip, *wanted], log, f"fetching PySpark {exact}")

    return Environment(exact, cache.entry(f"pyspark-{exact}-{cache.digest(' '.join(wanted))}", fill))


def _newest(beginning: str) -> str:
    """As pip names them; ``LookupError`` where there is none."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", "pyspark"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    listed = re.findall(r"Available versions: (.*)", said)
    found = [v for v in ", ".join(listed).split(", ") if v.startswith(f"{beginning}.") and re.fullmatch(r"[\d.]+", v)]
    if not found:
        raise LookupError(f"PyPI has no PySpark {beginning}")
    return max(found, key=lambda v: [int(part) for part in v.split(".")])


def reader_needs() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["reader"]]
