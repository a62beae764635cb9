"""Number of threads with which Lance decodes and encodes.

Lance leaves two cores to reading and writing.  So with two or three cores it has one thread for all else.  Writing
100,000 rows then took 38 ms instead of 28 (Lance 14, two cores).  Writers (services, commands, bulk loads) use as many
threads as cores.  Readers keep Lance's number: their own work on the rows takes the other core (strong reads took a
tenth longer).
"""

from __future__ import annotations

import os

CORES_RESERVED = "LANCE_IO_CORE_RESERVATION"
"""Lance's variable."""


def use_all_cores() -> None:
    """Give Lance a thread for each core, unless the environment says otherwise.  This must be called before Lance reads
    or writes in this process."""
    os.environ.setdefault(CORES_RESERVED, "0")
