"""``lancewal verify``: compare a table with the state that its records give."""

from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from lancewal_core.cli.named import partition_named
from lancewal_core.cli.options import Asked
from lancewal_core.cli.output import say
from lancewal_core.errors import ASKS_FOR_A_PERSON, BUG, InvalidInput
from lancewal_core.process.library_errors import first_line

if TYPE_CHECKING:
    from lancewal_audit.verify.report import Report
    from lancewal_core.settings.load import Settings


INDEX_KEYS = 400
"""Number of keys that are sampled for ``--indexes``.  With it, each index gets some hundred queries: seconds on a local
disk, a minute on an object store."""


Sources: TypeAlias = Literal["topic", "wal", "both"]


def command(
    asked: Asked,
    from_: Annotated[
        Sources,
        typer.Option("--from", help="Compare with records of the topic, the WAL, or both (and these with each other)."),
    ] = "both",
    at: Annotated[
        str,
        typer.Option(
            help="A point: a receipt (lw1...), as a read prints it, or version:412; by default a strong read is made now.",
            metavar="POINT",
        ),
    ] = "",
    sample: Annotated[
        float | None, typer.Option(help="Fraction of the keys, from above 0 to 1: the same keys each time.")
    ] = None,
    keys: Annotated[int | None, typer.Option(help="About this many keys instead of a fraction.", min=1)] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTITION", help="Only keys of this partition: 3, or orders-3; may be repeated."),
    ] = None,
    indexes: Annotated[
        bool, typer.Option("--indexes", help="Ask the table's secondary indexes too, and compare with a scan.")
    ] = False,
    index_keys: Annotated[
        int, typer.Option(help="With --indexes: look up the values of about this many keys.", min=2)
    ] = INDEX_KEYS,
    no_foreign_rows: Annotated[
        bool, typer.Option("--no-foreign-rows", help="Count a row that no record explains as a difference.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=0, help="Largest number of findings of each kind to show; all are counted.")
    ] = 20,
    report: Annotated[
        Path | None, typer.Option(help="Write the report into this file, as JSON.", metavar="FILE")
    ] = None,
) -> None:
    """Compare a table, and a read of it, with the rows that its records give for each key. Nothing is changed.

    Exit code 0: everything that was compared is equal. 1: something differs, or no record is left to compare any row
    with. 2 to 5: the table could not be compared; these codes mean the same for every command.

    Example: lancewal verify --from wal --sample 0.01
    """
    from pyarrow import ArrowException

    try:
        from lancewal_audit.verify.verification import VerifyRequest, verify_table

        settings = asked.settings()
        settings.need("table.uri")
        uri = settings.table.uri
        _check(settings, from_, sample, keys)
        request = VerifyRequest(
            sources=from_,
            at=at or None,
            fraction=1.0 if sample is None else sample,
            keys=keys,
            partitions=_partitions(settings, uri, partition) if partition else None,
            foreign_rows_differ=no_foreign_rows,
            findings_max=limit,
            index_keys=index_keys if indexes else None,
        )
        found = verify_table(settings, uri, request)
        if report is not None:
            _write(report, found)
    except (OSError, MemoryError, ArrowException) as error:
        say(f"lancewal: not_compared: {type(error).__name__}: {first_line(error)}{_hint(error)}", err=True)
        raise typer.Exit(ASKS_FOR_A_PERSON if isinstance(error, OSError | MemoryError) else BUG) from error
    from lancewal_audit.verify.report import report_text

    asked.report(found.as_json(), report_text(found))
    if not found.equal or found.nothing_compared:
        raise typer.Exit(1)


def _hint(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return ". Compare fewer keys: --sample or --keys"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f". Temporary files lie in {tempfile.gettempdir()}: make room there, or set TMPDIR"
    return ""


def _check(settings: Settings, from_: Sources, sample: float | None, keys: int | None) -> None:
    if sample is not None and keys is not None:
        raise InvalidInput("expected --sample or --keys, not both")
    if sample is not None and not 0 < sample <= 1:
        raise InvalidInput(f"--sample {sample:g}: expected a fraction above 0 and up to 1")
    if from_ != "wal" and not settings.kafka.bootstrap_servers:
        raise InvalidInput("kafka.bootstrap_servers is not set: set it, or compare with the WAL alone: --from wal")


def _partitions(settings: Settings, uri: str, names: list[str]) -> frozenset[int]:
    from lancewal_core.open import Address

    contract = Address.of(settings, uri).contract()
    return frozenset(partition_named(name, contract) for name in names)


def _write(place: Path, report: Report) -> None:
    try:
        place.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    except OSError as error:
        raise InvalidInput(f"--report {place}: {error.strerror or error}") from error
