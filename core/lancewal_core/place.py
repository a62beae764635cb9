"""A table's place: its address in one spelling.  It is what a copy of the folder does not take along.

Two spellings of one local folder are one place.  A folder that two addresses lead to, such as a bucket that is also mounted,
counts as two places: nobody can tell it from a copy.  One address on two machines, or at two servers, counts as one.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from lancewal_core.store_obstore import local_folder


def place_of(uri: str) -> str:
    """The place of the table at ``uri``: a local folder without links, or ``s3://bucket/prefix``."""
    folder = local_folder(uri)
    if folder is not None:
        return str(folder.resolve())
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}/{parts.path.strip('/')}"
