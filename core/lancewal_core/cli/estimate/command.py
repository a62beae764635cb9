"""``lancewal estimate``: prints what a deployment is expected to ask of its store, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.estimate.price_classes import PricedStore, by_class
from lancewal_core.cli.options import Output, OutputOption
from lancewal_core.cli.output import aligned, say, say_json
from lancewal_core.errors import InvalidInput
from lancewal_core.settings.durations import option_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lancewal_core.cli.estimate.counted import RequestCounts
    from lancewal_core.cli.estimate.expected import Expected

_KINDS = ("put", "get", "list", "delete")


def command(
    rows_per_s: Annotated[float, typer.Option(help="Records a second, of all partitions together.")],
    partitions: Annotated[int, typer.Option(help="Partitions of the topic.")],
    row_size: Annotated[
        str, typer.Option(help="Size of a row, about that of its record's value: 200B, 4KiB.", metavar="SIZE")
    ] = "200B",
    members: Annotated[int, typer.Option(help="Ingest processes.")] = 1,
    latency: Annotated[
        str, typer.Option(help="From a request to the store to its answer.", metavar="DURATION")
    ] = "30ms",
    freshness: Annotated[
        str,
        typer.Option(
            help="Longest time from a record's arrival at the broker until a strong read has shown it. By default, "
            "the time that results from the default settings.",
            metavar="DURATION",
        ),
    ] = "",
    readers: Annotated[int, typer.Option(help="Processes that keep the table open and read it strongly.")] = 0,
    read_every: Annotated[
        str,
        typer.Option(
            help="Time from the start of a reader's read to the start of its next one; by default there is no pause.",
            metavar="DURATION",
        ),
    ] = "",
    store: Annotated[
        PricedStore, typer.Option(help="Cloud of the store. Requests are counted by its price classes.")
    ] = PricedStore.S3,
    put_price: Annotated[
        float | None,
        typer.Option(
            help="Price of a thousand PUT, POST or LIST of S3, by default 0.005 (US dollars).", show_default=False
        ),
    ] = None,
    get_price: Annotated[
        float | None,
        typer.Option(help="Price of a thousand GET or HEAD of S3, by default 0.0004.", show_default=False),
    ] = None,
    stored_price: Annotated[
        float | None,
        typer.Option(help="Price of 10^9 bytes stored in S3 for a month, by default 0.023.", show_default=False),
    ] = None,
    fetched_price: Annotated[
        float | None,
        typer.Option(help="Price of 10^9 bytes that leave S3, by default 0.", show_default=False),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Tell what a deployment would ask of its object store, how soon it would show a row, and what that costs a month.

    It contacts no store and needs no table: it adds up the requests that were counted for each act, by the default settings.
    Requests for rows of the table itself come on top.  A wish that no setting fulfils is an error that says what is
    possible. Money is told for S3 alone: other clouds' prices depend on the location, so multiply each class by its price.

    Example: lancewal estimate --rows-per-s 10000 --partitions 64 --members 2 --freshness 2s
    """
    from lancewal_core.cli.estimate.deployment import Deployment
    from lancewal_core.cli.estimate.expected import Prices, expected

    wished = Deployment(
        rows_per_s=rows_per_s,
        row_bytes=_bytes(row_size),
        partitions=partitions,
        members=members,
        latency_s=option_s("--latency", latency),
        freshness_s=option_s("--freshness", freshness) if freshness else None,
        readers=readers,
        read_every_s=option_s("--read-every", read_every) if read_every else 0.0,
    )
    given = {"put": put_price, "get": get_price, "stored": stored_price, "fetched": fetched_price}
    prices = {name: price for name, price in given.items() if price is not None}
    if prices and store is not PricedStore.S3:
        raise InvalidInput(
            f"--{next(iter(prices))}-price: prices are for --store s3. For another store, multiply the requests and bytes by "
            "your prices"
        )
    found = expected(wished)
    money = found.money(Prices(**prices)) if store is PricedStore.S3 else None
    if output is Output.JSON:
        say_json(as_json(found, store, money))
    else:
        say(text(found, store, money))


def as_json(found: Expected, store: PricedStore, money: Mapping[str, float] | None) -> dict[str, object]:
    from lancewal_core.cli.estimate.expected import MONTH_S

    return {
        "store": store.value,
        "linger_ms": found.pace.linger_ms,
        "freshness_typical_s": found.pace.typical_s,
        "freshness_most_s": found.pace.most_s,
        "generation_s": found.pace.generation_s,
        "sealed_by": found.pace.sealed_by,
        "page_tries": found.page_tries,
        "requests_per_s": _kinds(found.per_s, 1.0) | {"by_act": {a: _kinds(k, 1.0) for a, k in found.by_act.items()}},
        "requests_per_month": _kinds(found.per_s, MONTH_S) | {"by_price_class": by_class(store, found.per_s * MONTH_S)},
        "bytes_per_month": {
            "log": found.log_bytes,
            "table": found.table_bytes,
            "fetched": found.fetched_bytes,
        },
        "history_bytes": found.history_bytes,
        "money_per_month": None if money is None else dict(money) | {"total": sum(money.values())},
    }


def text(found: Expected, store: PricedStore, money: Mapping[str, float] | None) -> str:
    from lancewal_core.cli.estimate.expected import MONTH_S

    at = found.pace
    acts: list[tuple[str, ...]] = [("requests a second", "PUT", "GET", "LIST", "DELETE")]
    acts += [(act, *_cells(kinds, 1.0)) for act, kinds in found.by_act.items()]
    acts += [("all", *_cells(found.per_s, 1.0)), ("all, a month", *_cells(found.per_s, MONTH_S))]
    figures = [
        ("ingest.linger_ms", f"{at.linger_ms}"),
        ("a row is seen after", f"{at.typical_s:.2f} s, at most {at.most_s:.2f} s"),
        ("a generation lasts", f"{at.generation_s:,.0f} s, by {at.sealed_by}"),
        ("tries of a page's swap", f"{found.page_tries:.2f}"),
        ("written a month", f"{_gb(found.log_bytes)} of the log, {_gb(found.table_bytes)} of the table"),
        ("fetched from the log a month", _gb(found.fetched_bytes)),
        ("stored of the log", _gb(found.history_bytes)),
    ]
    if money is not None:
        told = ", ".join(f"{_WORDS[k]} {v:,.2f}" for k, v in money.items())
        figures.append(("money a month (US dollars)", f"{sum(money.values()):,.2f}: {told}"))
    classes = by_class(store, found.per_s * MONTH_S)
    figures += [(f"requests a month, {name}", f"{number:,.0f}") for name, number in classes.items()]
    return "\n".join([*aligned(figures), "", *aligned(acts, range(1, 5))])


_WORDS = {"put_and_list": "PUT and LIST", "get": "GET", "history": "the log stored", "fetched": "fetched"}


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:,.1f} GB"


def _kinds(found: RequestCounts, times: float) -> dict[str, float]:
    return {kind: getattr(found, kind) * times for kind in _KINDS}


def _cells(found: RequestCounts, times: float) -> list[str]:
    values = _kinds(found, times).values()
    return [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values]


def _bytes(text: str) -> float:
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return float(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise InvalidInput(f"--row-size {text}: expected a size in bytes, such as 200B or 4KiB") from None
