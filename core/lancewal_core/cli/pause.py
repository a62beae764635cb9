"""``lancewal pause ingest|flusher`` and ``lancewal resume ingest|flusher``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.options import Asked, DryRunOption
from lancewal_core.errors import InvalidInput
from lancewal_core.settings.durations import EXPECTED, duration_s
from lancewal_core.table.control import Service, until_text

if TYPE_CHECKING:
    from lancewal_core.names.ids import Making
    from lancewal_core.settings.load import Settings
    from lancewal_core.store.object_store import ObjectStore
    from lancewal_core.table.control import Control

_LONGEST_S = 3650 * 86400

ServiceArgument = Annotated[Service, typer.Argument(help="The service of the table.")]


def pause_s(text: str) -> float:
    """Return the seconds of ``90s``, ``10m``, ``2h`` or ``1d``; ``InvalidInput`` for another text, and above 3650 days."""
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
    import uuid

    from lancewal_core.process.clock import SystemClock
    from lancewal_core.table.control import changed, end_of_pause, read_control
    from lancewal_core.table.control import pause as pause_service

    for_s, clock = pause_s(duration) if duration else None, SystemClock()
    store, making = _table(asked.settings())
    if dry_run:
        _show(changed(read_control(store, making), service, end_of_pause(clock, for_s)), service, asked, dry_run=True)
    else:
        _show(pause_service(store, clock, lambda: uuid.uuid4().hex, service, making, for_s), service, asked)


def resume(
    asked: Asked,
    service: ServiceArgument,
    dry_run: DryRunOption = False,
) -> None:
    """End the pause of a service; its processes go on within 5 s.

    Example: lancewal resume flusher
    """
    import uuid

    from lancewal_core.process.clock import SystemClock
    from lancewal_core.table.control import changed, read_control
    from lancewal_core.table.control import resume as resume_service

    store, making = _table(asked.settings())
    if dry_run:
        _show(changed(read_control(store, making), service, None), service, asked, dry_run=True)
    else:
        _show(resume_service(store, SystemClock(), lambda: uuid.uuid4().hex, service, making), service, asked)


def _table(settings: Settings) -> tuple[ObjectStore, Making | None]:
    """Return the table's store and its making.  ``NotALancewalTable`` if the folder has no contract."""
    from lancewal_core.store.obstore import open_store
    from lancewal_core.table.contract import read_contract

    settings.need("table.uri")
    where = settings.table.uri
    store = open_store(where, settings.storage.options)
    # A pause of something else would be written, and heard by nobody.
    return store, read_contract(store, where).making


def _show(control: Control, service: Service, asked: Asked, *, dry_run: bool = False) -> None:
    until = control.ingest if service is Service.INGEST else control.flusher
    text = f"{service} {'would be' if dry_run else 'is'} {'not paused' if until is None else f'paused {until_text(until)}'}"
    asked.report(control.model_dump(mode="json", exclude={"write_id"}), text, dry_run=dry_run)
