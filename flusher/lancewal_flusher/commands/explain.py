"""``lancewal flush run --dry-run``: the outlook of the next merge, for people or as JSON."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict

from lancewal_core.cli.options import Output
from lancewal_core.cli.shown import aligned, one_line, say, say_json
from lancewal_core.settings.load import Settings
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.merge.explain import MergeOutlook, look
from lancewal_flusher.open import open_context
from lancewal_flusher.service.limits import compaction_limits, merge_limits


def show_next_merge(settings: Settings, output: Output) -> None:
    """Look at the table, write nothing."""
    flusher = settings.flusher
    with ExitStack() as stack:
        context = open_context(settings, stack, on_threads=True)
        found = look(
            context,
            merge_limits(settings, context.contract),
            compaction_limits(flusher) if flusher.compaction else None,
            threads=flusher.threads,
        )
    if isinstance(found, Refused):
        content, text = {"refused": found.reason}, f"nothing can be merged now: {found.reason}"
    else:
        content, text = asdict(found), outlook_text(found)
    if output is Output.JSON:
        say_json(content)
    else:
        say(text)


def outlook_text(outlook: MergeOutlook) -> str:
    """The outlook for people."""
    damaged = [f"{region} is left where it is damaged: {one_line(why)}" for region, why in outlook.damaged.items()]
    if not outlook.generations:
        what = "nothing else waits" if damaged else "nothing waits"
        return "\n".join([f"version {outlook.version}: {what} for a merge", *damaged])
    regions = ", ".join(
        f"{region} {first}" if first == last else f"{region} {first} to {last}"
        for region, (first, last) in sorted(outlook.generations.items())
    )
    lines = [
        f"version {outlook.version}: would merge generations {regions}",
        f"{outlook.keys} keys: {outlook.rows_adopted} rows adopted, {outlook.rows_written} rows written, "
        f"{outlook.rows_in_place} patched in place; {outlook.fragments_scanned} fragments to scan",
        f"about {outlook.bytes_written} bytes written; {outlook.seconds_merge:.3f} s, "
        f"{outlook.seconds:.3f} s with the compaction right behind",
    ]
    lines += damaged
    for names in sorted({f.indexed_by for f in outlook.fragments if f.indexed_by}):
        ids = ", ".join(str(f.fragment) for f in outlook.fragments if f.indexed_by == names)
        lines.append(
            f"not patched in place, because patches set columns under index {', '.join(names)}: fragments {ids}"
        )
    if outlook.deferred:
        lines.append("put off for now: deletion vectors would take more bytes than the rows (flusher.defer_s)")
    rows = [
        ("fragment", "rows", "hidden", "replaced", "in place", "strategy", "bytes", "seconds", "weight of each strategy"),
        *(
            (
                str(f.fragment), str(f.rows), str(f.deleted_rows), str(f.replaced), str(f.in_place), f.strategy.value,
                str(f.bytes_written), f"{f.seconds:.4f}",
                ", ".join(f"{strategy.value} {weight}" for strategy, weight in f.bytes_of.items()),
            )
            for f in outlook.fragments
        ),
    ]  # fmt: skip
    if outlook.fragments:
        lines += aligned(rows, figures=range(8))
    return "\n".join(lines)
