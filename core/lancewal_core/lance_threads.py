"""How many threads Lance decodes and encodes with.

Lance leaves two cores to reading and writing, so that of two or three cores it has one thread for all else: writing 100,000
rows then took 38 ms instead of 28 (Lance 14, two cores).  Here it has as many threads as cores: what we read and write is
small or local, or waits for an object store without a core.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping


def use_all_cores(environ: MutableMapping[str, str] = os.environ) -> None:
    """To be called before Lance reads or writes in this process; what the environment says already stays."""
    environ.setdefault("LANCE_IO_CORE_RESERVATION", "0")
