"""Check that a suitable PySpark and Java are installed, before Spark fails with errors that name neither."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path
from zipimport import zipimporter

from lancewal_core.errors import InvalidSettings

_OLDEST = (4, 0)
_JAVAS = ("17", "21")
_VERSION_S = 20.0


def check_pyspark() -> None:
    """Raise ``InvalidSettings`` if PySpark is missing, or too old for data sources in Python."""
    wanted = "lancewal needs PySpark 4.0 to 4.3: pip install 'lancewal[spark]'"
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise InvalidSettings(f"PySpark is not installed; {wanted}")
    # Not imported: PySpark may be broken, and a session is to be started before much else is loaded.  Asked of the loader:
    # spark-submit has PySpark in an archive.
    if not isinstance(spec.loader, (SourceFileLoader, zipimporter)):
        return
    version = spec.loader.get_data(str(Path(spec.origin).with_name("version.py"))).decode()
    found = re.search(r"((\d+)\.(\d+)[^\"']*)", version.split("__version__")[-1])
    if found and (int(found[2]), int(found[3])) < _OLDEST:
        raise InvalidSettings(f"PySpark {found[1]} is installed; {wanted}")


def missing_java() -> str:
    """Return what is wrong with the Java that Spark would start; an empty text if it is suitable."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"
    wanted = f"Spark needs Java {' or '.join(_JAVAS)} (Debian: apt install openjdk-17-jre-headless)"
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=_VERSION_S)
    except OSError:
        return f"Java was not found {f'in JAVA_HOME={home}' if home else 'on the PATH'}; {wanted}"
    except subprocess.TimeoutExpired:
        return f"{program} did not tell its version within {_VERSION_S} s; {wanted}"
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    if found and found[1] not in _JAVAS:
        return f"{program} is Java {found[1]}; {wanted}"
    return ""
