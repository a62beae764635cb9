"""``lancewal merge --dry-run``: what the next merge would do, for people or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from lancewal_core.cli.output import aligned, one_line
from lancewal_core.errors import counted
from lancewal_core.settings.load import Settings
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import by_newest_contract
from lancewal_flusher.merge.explain import MergeExplanation, explain
from lancewal_flusher.open import open_context
from lancewal_flusher.service.limits import compaction_limits, merge_limits


def next_merge(settings: Settings) -> tuple[Mapping[str, object], str]:
    """Return what the next merge would do, as JSON and as text for people. Nothing is written."""
    flusher = settings.flusher
    with open_context(settings, on_threads=True) as context:
        limits = merge_limits(settings, context.contract)
        compaction = compaction_limits(flusher) if flusher.compaction else None
        found = by_newest_contract(context, lambda newest: explain(newest, limits, compaction, flusher.threads))
    if isinstance(found, Refused):
        return {"refused": found.reason}, f"nothing can be merged now: {found.reason}"
    return asdict(found), explanation_text(found)


def explanation_text(explanation: MergeExplanation) -> str:
    """Return the explanation as text for people."""
    damaged = [f"{region} is left where it is damaged: {one_line(why)}" for region, why in explanation.damaged.items()]
    if not explanation.generations:
        what = "nothing else waits" if damaged else "nothing waits"
        return "\n".join([f"version {explanation.version}: {what} for a merge", *damaged])
    regions = ", ".join(
        f"{region} {first}" if first == last else f"{region} {first} to {last}"
        for region, (first, last) in sorted(explanation.generations.items())
    )
    lines = [
        f"version {explanation.version}: would merge generations {regions}",
        f"{counted(explanation.keys, 'key')}: {counted(explanation.rows_adopted, 'row')} adopted, "
        f"{counted(explanation.rows_written, 'row')} written, {explanation.rows_in_place} patched in place; "
        f"{counted(explanation.fragments_scanned, 'fragment')} to scan",
        f"about {explanation.bytes_written} bytes written; {explanation.seconds_merge:.3f} s, "
        f"{explanation.seconds:.3f} s with the compaction right after it",
    ]
    lines += damaged
    for names in sorted({f.indexed_by for f in explanation.fragments if f.indexed_by}):
        ids = ", ".join(str(f.fragment) for f in explanation.fragments if f.indexed_by == names)
        lines.append(
            f"not patched in place, because patches set columns under index {', '.join(names)}: fragments {ids}"
        )
    if explanation.deferred:
        lines.append("put off for now: deletion vectors would take more bytes than the rows (flusher.merge_defer_s)")
    rows = [
        ("fragment", "rows", "hidden", "replaced", "in place", "strategy", "bytes", "seconds", "weight of each strategy"),
        *(
            (
                str(f.fragment), str(f.rows), str(f.deleted_rows), str(f.replaced), str(f.in_place), f.strategy.value,
                str(f.bytes_written), f"{f.seconds:.4f}",
                ", ".join(f"{strategy.value} {weight}" for strategy, weight in f.bytes_of.items()),
            )
            for f in explanation.fragments
        ),
    ]  # fmt: skip
    if explanation.fragments:
        lines += aligned(rows, figures=range(8))
    return "\n".join(lines)
