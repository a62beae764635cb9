"""Errors that lancewal raises on purpose: a branch for each thing that a caller can do about it.

``Retry``: repeat the call later.  ``Refresh``: read the newest state again.  ``Fenced``: another process owns the
partition or log now; stop.  ``StartAgain``: end the process, and start a new one.  ``ActionNeeded``: a person must
change something first.  ``Corrupt``: restore or repair the object that the error names.  The classes below the branches
say what happened.
"""

from lancewal_core.errors import *  # noqa: F403 # all of them are public
from lancewal_core.errors import __all__ as __all__
