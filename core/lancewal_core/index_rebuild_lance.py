"""Building a secondary index of a Lance data set anew, with the parameters that it has (``index_build_lance``)."""

from __future__ import annotations

from typing import Any

from lancewal_core.index_build_lance import build_again, index_build


def rebuild(dataset: Any, name: str) -> None:
    """Build the index anew from all rows of the version that ``dataset`` has open, in place of all segments.

    ``ValueError`` names an index of which not all parameters are known.
    """
    build = index_build(dataset, name)
    if build is None or build.unknown:
        kind, why = ("", "it is gone") if build is None else (f", of kind {build.kind}", build.unknown)
        raise ValueError(
            f"lancewal does not know all parameters of index {name}{kind}: build it anew yourself, with replace=True and its "
            f"own parameters; until then queries by it may find rows by old values ({why})"
        )
    build_again(dataset, build)
