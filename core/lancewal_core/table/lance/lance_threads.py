"""How many threads Lance decodes and encodes with.

Lance leaves two cores to reading and writing, so that of two or three cores it has one thread for all else: writing 100,000
rows then took 38 ms instead of 28 (Lance 14, two cores).  What writes (services, commands, bulk loads) has as many threads as
cores.  Readers stay as Lance has it: what they do with the rows takes the other core (strong reads took a tenth longer).
"""

from __future__ import annotations

import os

CORES_RESERVED = "LANCE_IO_CORE_RESERVATION"
"""Lance's variable."""


def use_all_cores() -> None:
    """To be called before Lance reads or writes in this process; what the environment says already stays."""
    os.environ.setdefault(CORES_RESERVED, "0")
