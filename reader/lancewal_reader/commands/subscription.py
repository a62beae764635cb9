"""``lancewal subscription create|list|drop``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import Asked, DryRunOption, YesOption, agree
from lancewal_core.cli.output import aligned

if TYPE_CHECKING:
    from lancewal_reader.subscriptions import Subscriptions

app = CommandApp(
    help="Create, list and drop subscriptions. Each keeps what a consumer of changes still needs from garbage collection."
)

NameArgument = Annotated[str, typer.Argument(help="Name of the subscription.", show_default=False)]


@app.command()
def create(
    asked: Asked,
    name: NameArgument,
    start: Annotated[
        str,
        typer.Option(
            help="A point, as for `lancewal read --at`, or now: the first changes are after it.", metavar="POINT"
        ),
    ] = "now",
) -> None:
    """Create a subscription: the changes after --start stay readable until its consumer has passed them.

    It keeps them no longer than `table.subscription_hold_s_max`. It cannot stop Lance's `cleanup_old_versions`. The
    receipt that is printed is the point of the state from which the changes go on.

    Example: lancewal subscription create warehouse --start now
    """
    from lancewal_core.table.subscriptions.subscriptions import about

    made = _subscriptions(asked).create(name, start)
    asked.report(
        {"subscription": about(made)},
        f"subscription {name}: version {made.version}\nreceipt: {made.receipt}",
    )


@app.command("list")
def list_all(asked: Asked) -> None:
    """List the table's subscriptions, with the receipts that their consumers have committed.

    Example: lancewal subscription list
    """
    from lancewal_core.table.subscriptions.subscriptions import Subscription, about

    readable = _subscriptions(asked).readable()
    found = [about(one) for one in readable.values() if isinstance(one, Subscription)]
    faults = [one for one in readable.values() if isinstance(one, Exception)]
    if found or asked.as_json or not faults:
        rows = [
            [str(one["name"]), f"committed {one['committed_at']}", f"version {one['version']}", str(one["receipt"])]
            for one in found
        ]
        asked.report({"subscriptions": found}, "\n".join(aligned(rows)) or "no subscriptions")
    if faults:
        raise faults[0]  # after the sound ones are shown


@app.command()
def drop(
    asked: Asked,
    name: NameArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Drop a subscription. Garbage collection then deletes what only it has kept. One that is damaged can be dropped
    too.

    Example: lancewal subscription drop warehouse --yes
    """
    subscriptions = _subscriptions(asked)
    if dry_run:
        subscriptions.check_exists(name)
    else:
        agree(yes, f"subscription {name} is dropped")
        subscriptions.drop(name)
    asked.report_dropped("subscription", name, dry_run=dry_run)


def _subscriptions(asked: Asked) -> Subscriptions:
    from lancewal_reader.table import open_table

    settings = asked.settings()
    settings.need("table.uri")
    table = open_table(
        settings.table.uri, storage_options=settings.storage.options, base_paths=settings.table.base_paths
    )
    return table.subscriptions()
