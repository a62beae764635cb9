"""Classes in which each cloud prices requests, and the class of each kind of request.

One object is deleted by one request.  On Azure that is a batch of one deletion: the deletion is free, the batch is a
request of its own.  Prices of Google and Azure differ by location and redundancy, so this module has none.

Sources: S3, https://aws.amazon.com/s3/pricing.  Google, https://cloud.google.com/storage/pricing#operations-by-class.
Azure, https://learn.microsoft.com/azure/storage/blobs/map-rest-apis-transaction-categories.  That table lists no batch of
deletions.  Microsoft's announcement of the batch interface counts a batch as one transaction, which ``other`` stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from lancewal_core.cli.estimate.counted import RequestCounts


class PricedStore(StrEnum):
    """A cloud whose price classes are used."""

    S3 = "s3"
    GCS = "gcs"
    AZURE = "azure"


_CLASSES: Mapping[PricedStore, Mapping[str, tuple[str, ...]]] = {
    PricedStore.S3: {"PUT, COPY, POST, LIST": ("put", "list"), "GET and others": ("get",), "free": ("delete",)},
    PricedStore.GCS: {"class A": ("put", "list"), "class B": ("get",), "free": ("delete",)},
    PricedStore.AZURE: {
        "write": ("put",),
        "list and create container": ("list",),
        "read": ("get",),
        "other": ("delete",),
        "free": ("delete",),
    },
}
"""Names of classes as the clouds write them, each with the kinds of ``RequestCounts`` in it.

Azure counts HEAD as ``other``, at the price of ``read`` in its lists.  Counts have GET and HEAD together, as ``get``."""


def by_class(store: PricedStore, found: RequestCounts) -> Mapping[str, float]:
    """Return the requests in each class of price."""
    return {name: sum(getattr(found, kind) for kind in kinds) for name, kinds in _CLASSES[store].items()}
