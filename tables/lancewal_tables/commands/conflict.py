"""``lancewal conflict list|settle``: show primary keys whose records came through two partitions, and settle them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.named import PartitionArgument, partition_named
from lancewal_core.cli.options import NOTHING_CHANGED, Asked, DryRunOption, YesOption, agree
from lancewal_core.cli.output import one_line
from lancewal_core.errors import InvalidInput, counted

if TYPE_CHECKING:
    from lancewal_core.names.ids import Region
    from lancewal_core.table.contract import Contract
    from lancewal_flusher.merge.settle import SettlePlan

app = CommandApp(
    help="Show primary keys whose records came through two partitions of a topic, and decide which records count."
)


@app.command("list")
def list_(
    asked: Asked,
    limit: Annotated[int, typer.Option(min=0, help="Largest number of keys to show. The total counts all keys.")] = 100,
) -> None:
    """Show the keys that wait for a decision. Each has the partition whose row is in the table, and the records that
    wait.

    The command shows primary keys, which are your data, and no other columns. As JSON: `seen` names the state that is
    shown, `total` is the number of keys that wait, and `keys` has the first of these keys.

    Example: lancewal conflict list -o json
    """
    from lancewal_core.keys.conflicts import read_conflicts
    from lancewal_core.open import Address
    from lancewal_core.table.contract import read_contract
    from lancewal_core.table.watermarks import Watermarks
    from lancewal_tables.status.conflict_list import keys_in_conflict

    settings = asked.settings()
    address = Address.of(settings)
    store = address.store()
    contract = read_contract(store, address.uri)
    in_force = Watermarks(store, address.table(), contract.making).newest()[1]
    seen = None if in_force.conflicts is None else in_force.conflicts.merge
    conflicts = read_conflicts(store, in_force.conflicts, contract)
    found, total = keys_in_conflict(conflicts, limit), conflicts.waiting_keys.num_rows
    lines = [f"{counted(total, 'key')} in conflict" + (f", as of {seen}" if seen else "")]
    for key in found:
        owner = "no partition's row is in the table" if key.owner is None else f"the table has {key.owner}'s"
        lines.append(f"{json.dumps(key.key, ensure_ascii=False)}  {owner}")
        for waiting in key.waiting:
            lines.append(f"    {waiting.region}: {waiting.state}, among offsets {waiting.first} to {waiting.next - 1}")
    if len(found) < total:
        lines.append(f"not shown: {total - len(found)}; give a higher `--limit`")
    content = {"seen": seen, "total": total, "keys": [asdict(key) for key in found]}
    asked.report(content, "\n".join(map(one_line, lines)))


@app.command()
def settle(
    asked: Asked,
    partition: PartitionArgument,
    key: Annotated[list[str] | None, typer.Option(help="A primary key, as `list` shows it; may be repeated.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Decide about all waiting keys of which the partition has records.")
    ] = False,
    topic_id: Annotated[
        str,
        typer.Option(help="Id of an earlier topic of this name, from before `lancewal table alter --topic-id`."),
    ] = "",
    seen: Annotated[
        str,
        typer.Option(
            help="State (`seen`) that `list` or --dry-run showed. If other records wait by now, nothing is changed."
        ),
    ] = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Decide for one partition: apply its waiting records to the table, and drop those of other partitions.

    If the table's row of a key came from that partition, the row stays. There is one commit; the flusher may run
    meanwhile. Repair the producers first: the next record through another partition is a conflict again. As JSON:
    `partition`, `seen` (as in `list`), the numbers of `keys`, of keys `changed` by waiting records, and of keys
    `dropped` by partition, and `dry_run`.

    Example: lancewal conflict settle orders-2 --all --dry-run
    """
    from lancewal_flusher.merge.settle import plan_settle
    from lancewal_flusher.merge.settle import settle as decide
    from lancewal_flusher.open import open_context
    from lancewal_tables.status.conflict_list import keys_named, keys_of_region

    if bool(key) == every:
        raise InvalidInput("expected either --key, once for each key, or --all")
    with open_context(asked.settings(), on_threads=True) as context:
        region = _region(context.contract, partition, topic_id)
        if not dry_run:
            agree(yes, "the waiting records of other partitions are dropped")
        done = (plan_settle if dry_run else decide)(
            context,
            region,
            lambda held: keys_of_region(held, region) if every else keys_named(held, key or ()),
            seen or None,
        )
    text = f"no waiting key has records of partition {region.partition}; nothing was changed"
    if done.keys.num_rows:
        text = "\n".join([*map(one_line, done.lines()), NOTHING_CHANGED if dry_run else "done"])
    asked.report(settled_json(done, dry_run=dry_run), text)


def settled_json(done: SettlePlan, *, dry_run: bool) -> dict[str, object]:
    """Return the JSON report of a decision that was made; with ``dry_run``, of one that would be made."""
    return {
        "partition": done.region.partition,
        "seen": None if done.in_force.conflicts is None else done.in_force.conflicts.merge,
        "keys": done.keys.num_rows,
        "changed": done.applied,
        "dropped": {region.name: keys for region, keys in sorted(done.dropped.items())},
        "dry_run": dry_run,
    }


def _region(contract: Contract, named: str, topic_id: str) -> Region:
    from lancewal_core.names.ids import Region, TopicId

    partition = partition_named(named, contract)
    return Region(contract.topic, TopicId(topic_id), partition) if topic_id else contract.regions[partition]
