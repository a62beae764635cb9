"""The log events that every service has; its own table extends this one."""

from __future__ import annotations

from lancewal_core.errors import LancewalError
from lancewal_core.process.event_table import EventTable, debug, error, info, warning


class ServiceEvents(EventTable):
    """Log events of every service.  ``kind`` and ``error`` are the stable kind and the text of an error."""

    service_started = info(
        "The service begins its work.  `port` is that of its metrics and health.",
        *("release", "contract_version", "partitions", "topic", "table_uuid", "group", "owner", "runner", "port"),
    )
    contract_taken_up = info(
        "The contract was altered: the service works by the version named from now on.", "contract_version"
    )
    columns_setting_former = warning(
        "`table.columns` names the columns of the contract version named, which were changed since: correct the setting.",
        "contract_version",
    )
    service_paused = warning(
        "An operator has paused the service, until the time given or until it is resumed.", "until"
    )
    service_resumed = warning("The operator's pause has ended.")
    operation_failed = warning(
        "An operation failed, and is tried again.",
        *("operation", "topic", "partition", "offset", "object", "kind", "error", "retry_s"),
    )
    invariant_violated = error(
        "A partition was seen in a state that must never occur, at the position: report it.",
        *("kind", "topic", "partition", "position"),
    )
    end_forced = warning(
        "The process was told to stop, and waited for a store or a broker until its time was over. It ends as in a crash; "
        "the next process goes on from the stored state.",
        "timeout_s",
    )
    connection_lost = debug("A client of the HTTP port went away.", "client", "error")
    request_failed = error("A request to the HTTP port ended by a fault of this program.", "client", "error")


def place_of(error: LancewalError) -> dict[str, object]:
    """Return the fields that say where an error was, as far as it knows: ``topic``, ``partition``, ``offset``,
    ``object``."""
    return {name: value for name, value in error.where.items() if name in ("topic", "partition", "offset", "object")}
