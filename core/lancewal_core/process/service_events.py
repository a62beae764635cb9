"""Log events that every service has.  The table of a service's own events extends this one."""

from __future__ import annotations

from lancewal_core.errors import LancewalError
from lancewal_core.process.event_table import EventTable, debug, error, info, warning


class ServiceEvents(EventTable):
    """Log events of every service.  ``kind`` is the stable kind of an error, ``error`` its text."""

    service_started = info(
        "The service begins its work.  `port` is that of its metrics and health.",
        *("release", "contract_version", "partitions", "topic", "table_uuid", "group", "owner", "runner", "port"),
    )
    contract_taken_up = info(
        "The contract has a new version, which the service follows from now on.", "contract_version"
    )
    columns_setting_former = warning(
        "`table.columns` has the columns of an earlier version of the contract, `contract_version`. Correct the setting.",
        "contract_version",
    )
    service_paused = warning(
        "An operator has paused the service, until the time given or until it is resumed.", "until"
    )
    service_resumed = warning("The operator's pause has ended.")
    operation_failed = warning(
        "An operation failed, and will be retried.",
        *("operation", "topic", "partition", "offset", "object", "kind", "error", "retry_s"),
    )
    invariant_violated = error(
        "A partition is in a state that must never occur, at the position `position`. Report it as a bug.",
        *("kind", "topic", "partition", "position"),
    )
    end_forced = warning(
        "The process was told to stop, and waited too long for a store or a broker. It ends as in a crash. The next "
        "process continues from the stored state.",
        "timeout_s",
    )
    connection_lost = debug("A client of the HTTP port closed its connection early.", "client", "error")
    request_failed = error("A request to the HTTP port ended by a fault of this program.", "client", "error")


def place_of(error: LancewalError) -> dict[str, object]:
    """Return the fields that say where an error occurred, as far as the error knows: ``topic``, ``partition``,
    ``offset``, ``object``."""
    return {name: value for name, value in error.where.items() if name in ("topic", "partition", "offset", "object")}
