"""The metrics of requests to the object store, which every service has."""

from __future__ import annotations

from itertools import product

from lancewal_core.process.metric_table import MetricTable, counter, histogram
from lancewal_core.store.object_kinds import KINDS, kind_of

_REQUEST_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

OPERATIONS = ("get", "get-range", "put", "list", "delete")
OTHER = "other"
OBJECTS = (*(kind.name.replace(" ", "-") for kind in KINDS), OTHER)


def object_of(key: str) -> str:
    """Return the label ``object`` for an object with this key."""
    kind = kind_of(key)
    return OTHER if kind is None else kind.name.replace(" ", "-")


class StoreMetricTable(MetricTable, prefix="lancewal_store"):
    """Metrics of requests.  ``operation`` is the kind of request, ``object`` the kind of its object; for a listing the
    first one that it shows."""

    requests = counter(
        "Requests of lancewal itself to the object store, without those of Lance. Outcomes: done, failed, absent (nothing "
        "is there). Outcomes of a put alone: unknown (no verdict), taken (an object is there, another process's or from an "
        "earlier try).",
        *("operation", "object", "outcome"),
        known=tuple(product(OPERATIONS, ("segment", OTHER), ("failed",))),
    )
    request_seconds = histogram(
        "Duration of a request, including the retries of the store's client.",
        _REQUEST_S,
        *("operation", "object"),
    )
    too_many_requests = counter(
        "Requests that lancewal sends again after a pause, since the store has answered that there are too many (429). "
        "Retries of the store's client are not seen.",
        "object",
    )
    read_bytes = counter("Bytes of objects read.", "object")
    written_bytes = counter("Bytes of objects stored.", "object")
    retries = counter(
        "Requests that repeat an earlier one about the same object, which failed or gave no verdict. Retries of the store's "
        "client are not seen.",
        *("operation", "object"),
    )
