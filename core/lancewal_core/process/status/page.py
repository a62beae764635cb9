"""The status of a service as one HTML page: problems first, then the way of every partition.

Guarantees
 1. Every text is escaped, and what neither is shown nor takes place (control characters, signs that turn text around) is
    written out: nothing that a topic, an owner or an error is called can be markup.
 2. It holds no script, no form and no address but that of the page itself; it asks for itself again every ``REFRESH_S``.
 3. It shows what ``TableStatus`` has: no row, no key, no setting.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence

from lancewal_core.process.clock import utc_text
from lancewal_core.process.status.causes import State, Step
from lancewal_core.process.status.diagnose import Diagnosis
from lancewal_core.process.status.report import MergeDone, PartitionStatus, TableStatus
from lancewal_core.process.status.style import STYLE

REFRESH_S = 10
_SHOWN_APART = 8
"""Problems of partitions that get a card of their own; the others are in the table."""
_LONG_S = 10.0
_URGENT = list(State)
_COMMAND = re.compile("`([^`]+)`")


def status_page(status: TableStatus) -> str:
    """See the module docstring."""
    parts = [
        f"<header><h1>lancewal {_text(status.seen_by)}</h1><span class=soft>{_text(status.topic)} &rarr; "
        f"<code>{_text(status.uri)}</code></span></header>",
        _card(status.diagnosis, _whose(status)),
        *_problems(status),
        "<h2>Partitions</h2>",
        _partitions(status.partitions),
        *(["<h2>Recent merges</h2>", _merges(status.recent_merges)] if status.recent_merges else []),
        "<h2>Table</h2>",
        _facts(status),
        *_list("Not known from here", status.unknown),
        *_list("Not looked at", status.not_looked_at),
        f"<footer>As of {utc_text(status.at_ms)}; the page asks again every {REFRESH_S} s. The same as JSON: "
        "<code>Accept: application/json</code>.</footer>",
    ]
    return _document(f"lancewal {status.seen_by}: {status.topic}", parts)


def nothing_yet(service: str) -> str:
    """Before a service knows anything."""
    said = "It has just begun, and knows nothing of its table yet."
    return _document(f"lancewal {service}", [f"<header><h1>lancewal {_text(service)}</h1></header><p>{said}</p>"])


def _document(title: str, parts: Iterable[str]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{REFRESH_S}">'
        f"<title>{_text(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def _text(value: object) -> str:
    """Guarantee 1."""
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in str(value))
    return html.escape(shown, quote=True)


def _prose(text: str) -> str:
    """A message: what stands between backticks is to be typed."""
    return _COMMAND.sub(r"<code>\1</code>", _text(text))


def _state(state: State) -> str:
    return f'<span class="state {state.value}">{state.value}</span>'


def _card(found: Diagnosis, of: str) -> str:
    do = f"<p><strong>To do:</strong> {_prose(found.do)}</p>" if found.do else ""
    return (
        f'<section class="card {found.state.value}">{_state(found.state)} <strong>{_text(of)}</strong> '
        f"at <strong>{found.step.value}</strong>: <code>{_text(found.kind)}</code>{_way(found.step)}"
        f"<p>{_prose(found.message)}</p>{do}</section>"
    )


def _way(here: Step) -> str:
    steps = (f"<li{' class=here' if step is here else ''}>{step.value}</li>" for step in Step)
    return f"<ol class=way>{''.join(steps)}</ol>"


def _whose(status: TableStatus) -> str:
    """Of whom the table's diagnosis is, where it is that of one partition."""
    found = [one.partition for one in status.partitions if one.diagnosis == status.diagnosis]
    return f"partition {found[0]}" if len(found) == 1 else "the table"


def _problems(status: TableStatus) -> list[str]:
    """A card for each partition that wants a person, but the first, which is shown already; and what else does."""
    wrong = [found for found in status.partitions if found.diagnosis.state is State.PROBLEM]
    rest = [found for found in wrong if found.diagnosis != status.diagnosis]
    cards = [_card(found.diagnosis, f"partition {found.partition}") for found in rest[:_SHOWN_APART]]
    if len(rest) > _SHOWN_APART:
        cards.append(f"<p class=soft>and {len(rest) - _SHOWN_APART} more, below</p>")
    said = {found.diagnosis.text for found in wrong} | {status.diagnosis.text}
    others = [text for text in status.problems if not any(text.endswith(one) for one in said)]
    cards += [f'<section class="card problem">{_prose(text)}</section>' for text in others]
    return ["<h2>Problems</h2>", *cards] if cards else []


def _rejected(found: PartitionStatus) -> str | None:
    few = found.rejections
    return f"{few.records} of {few.records + few.rows}" if few.records else None


def _age(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.1f} s" if seconds < _LONG_S else f"{seconds:.0f} s"


_FIGURES: dict[str, Callable[[PartitionStatus], object]] = {
    "kafka": lambda found: found.high,
    "consumed": lambda found: found.consumed,
    "decoded": lambda found: found.decoded,
    "durable": lambda found: found.durable,
    "flushed": lambda found: found.flushed,
    "merged": lambda found: found.merged,
    "read": lambda found: found.read,
    "lag": lambda found: found.lag,
    "oldest not durable": lambda found: _age(found.freshness_s),
    "oldest not merged": lambda found: _age(found.unmerged_s),
    "unmerged rows": lambda found: found.unmerged_rows,
    "rejected": _rejected,
}


def _partitions(partitions: Sequence[PartitionStatus]) -> str:
    if not partitions:
        return "<p class=soft>None is known here.</p>"
    order = sorted(partitions, key=lambda found: (_URGENT.index(found.diagnosis.state), found.partition))
    # A column of which nothing is known here would only take room.
    shown = [name for name, of in _FIGURES.items() if any(of(found) is not None for found in partitions)]
    figures = "".join(f"<th class=n>{name}</th>" for name in shown)
    head = f"<th class=n>partition</th><th>stands</th>{figures}<th>generations</th><th>owner</th>"
    rows = "".join(_row(found, shown) for found in order)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"


def _row(found: PartitionStatus, shown: Sequence[str]) -> str:
    said = found.diagnosis
    generations = ", ".join(f"{count} {state}" for state, count in found.generations.items())
    return (
        f"<tr class={said.state.value}>{_number(found.partition)}<td>{_state(said.state)} "
        f"<code>{said.step.value}: {_text(said.kind)}</code></td>"
        f"{''.join(_number(_FIGURES[name](found)) for name in shown)}<td>{_text(generations or '-')}</td>"
        f'<td class=owner title="{_text(found.owner or "")}">{_text(found.owner or "-")}</td></tr>'
    )


def _number(value: object) -> str:
    return f"<td class=n>{'-' if value is None else _text(value)}</td>"


def _merges(merges: Sequence[MergeDone]) -> str:
    def row(done: MergeDone) -> str:
        figures = (done.version, done.partitions, done.generations, done.rows)
        return f"<tr><td>{utc_text(done.at_ms)}</td>{''.join(map(_number, figures))}</tr>"

    head = "<th>landed</th>" + "".join(
        f"<th class=n>{name}</th>" for name in ("version", "partitions", "generations", "rows added")
    )
    return (
        f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{''.join(map(row, merges))}</tbody></table></div>"
    )


def _facts(status: TableStatus) -> str:
    paused = ", ".join(
        f"{service} until {utc_text(until) if isinstance(until, int) else until}"
        for service, until in status.paused.items()
    )
    shown = {
        "address": status.uri,
        "table": status.table_uuid,
        "version": status.table_version,
        "rows": status.table_rows,
        "fragments": status.table_fragments,
        "contract version": status.contract_version,
        "topic": f"{status.topic} ({status.topic_id})",
        "primary key": ", ".join(status.primary_key),
        "region key": ", ".join(status.region_key) or "record key",
        "consumer group": status.group,
        "members": status.group_members,
        "paused": paused or None,
        "last merge": None if status.last_merge_ms is None else utc_text(status.last_merge_ms),
        "keys in conflict": status.keys_in_conflict or None,
    }
    terms = (f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in shown.items() if value is not None)
    return f"<div class=card><dl>{''.join(terms)}</dl></div>"


def _list(title: str, texts: Sequence[str]) -> list[str]:
    if not texts:
        return []
    return [f"<h2>{title}</h2>", f"<ul class=soft>{''.join(f'<li>{_prose(text)}</li>' for text in texts)}</ul>"]
