"""``lancewal pause ingest|flusher`` and ``lancewal resume ingest|flusher``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.options import Asked, DryRunOption
from lancewal_core.errors import InvalidInput
from lancewal_core.settings.durations import EXPECTED, duration_s
from lancewal_core.table.control import Service, until_text

if TYPE_CHECKING:
    from lancewal_core.table.control import Until

_LONGEST_S = 3650 * 86400

ServiceArgument = Annotated[Service, typer.Argument(help="The service of the table.")]


def pause_s(text: str) -> float:
    """Return the seconds of ``90s``, ``10m``, ``2h`` or ``1d``.

    Raises ``InvalidInput`` for another text, for 0 or less, and for more than 3650 days.
    """
    seconds = duration_s(text)
    if seconds is None or not 0 < seconds <= _LONGEST_S:
        raise InvalidInput(f"--for {text}: {EXPECTED}, above 0 and at most 3650d")
    return seconds


def pause(
    asked: Asked,
    service: ServiceArgument,
    duration: Annotated[
        str, typer.Option("--for", help="End the pause by itself after so long, such as 10m.", metavar="DURATION")
    ] = "",
    dry_run: DryRunOption = False,
) -> None:
    """Let all processes of a service pause, within 5 s: ingest consumes nothing, the flusher begins no round.

    Without `--for` the pause holds until `lancewal resume`.  Kafka keeps records only as long as the topic retains them.

    Example: lancewal pause flusher --for 10m
    """
    from lancewal_core.process.clock import SystemClock
    from lancewal_core.table.control import end_of_pause

    _set(asked, service, end_of_pause(SystemClock(), pause_s(duration) if duration else None), dry_run=dry_run)


def resume(
    asked: Asked,
    service: ServiceArgument,
    dry_run: DryRunOption = False,
) -> None:
    """End the pause of a service; its processes go on within 5 s.

    Example: lancewal resume flusher
    """
    _set(asked, service, None, dry_run=dry_run)


def _set(asked: Asked, service: Service, until: Until | None, *, dry_run: bool) -> None:
    """Set the end of a service's pause (None: no pause), and report the state after that."""
    import uuid

    from lancewal_core.process.clock import SystemClock
    from lancewal_core.store.obstore import open_store
    from lancewal_core.table.contract import read_contract
    from lancewal_core.table.control import changed, read_control, set_pause

    settings = asked.settings()
    settings.need("table.uri")
    where = settings.table.uri
    store = open_store(where, settings.storage.options)
    # A pause of something else would be written, and heard by nobody.
    making = read_contract(store, where).making
    if dry_run:
        control = changed(read_control(store, making), service, until)
    else:
        control = set_pause(store, SystemClock(), lambda: uuid.uuid4().hex, service, until, making)
    until = control.ingest if service is Service.INGEST else control.flusher
    text = f"{service} {'would be' if dry_run else 'is'} {'not paused' if until is None else f'paused {until_text(until)}'}"
    asked.report(control.model_dump(mode="json", exclude={"write_id"}), text, dry_run=dry_run)
