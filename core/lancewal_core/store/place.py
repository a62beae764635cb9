"""A table's place: its address, absolute and in one form.  A copy of the folder has another place.

Two spellings of one local folder are one place (``same_place``), also through links that this machine can follow.  Links
stay in what is stored, since on another machine other links may lead to the folder.  A folder with two addresses,
such as a bucket that is also mounted, counts as two places: nobody can tell it from a copy.  One address on two
machines, or at two servers, counts as one.

A container of Azure belongs to an account, so its place has the form of ``abfss``, which names both.  Addresses get
this form where they enter (``address.whole_address``).  An endpoint is no part of a place: a private link leads to the
same account.
"""

from __future__ import annotations

import os

from lancewal_core.store.address import split_address, whole_address
from lancewal_core.store.obstore import local_folder


def place_of(uri: str) -> str:
    """Return the place of the table at ``uri``, which is an address too: an absolute local folder, or
    ``s3://bucket/prefix`` and the like."""
    folder = local_folder(uri)
    if folder is not None:
        return os.path.abspath(folder)
    parts = split_address(whole_address(uri, None))
    return f"{parts.scheme}://{parts.netloc}/{parts.path.strip('/')}"


def same_place(one: str, other: str) -> bool:
    """Return whether two places are one: equal texts, or local paths that lead to one folder on this machine."""
    if one == other:
        return True
    return os.path.isabs(one) and os.path.isabs(other) and os.path.realpath(one) == os.path.realpath(other)
