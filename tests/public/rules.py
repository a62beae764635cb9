"""The rules that hold for every name a user meets, and the words to avoid: one list for names, one for what people read.

The tests of metrics, log events, settings, commands and pages take them from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

UNITS = frozenset({"s", "ms", "bytes", "rows", "ratio"})
OTHER_UNITS = frozenset({"sec", "secs", "seconds", "minutes", "hours", "kb", "kib", "mb", "mib", "percent", "share"})
POLICIES = frozenset({"stop", "dead-letter", "ignore"})
"""What to do with a record, in settings and options named ``on_<what>``."""
READ_AS_SOMETHING_ELSE = frozenset({"on", "off", "yes", "no", "null", "true", "false", "y", "n"})
"""By YAML, as values and as keys."""

NOT_IN_NAMES = frozenset({"act", "delta", "dlq", "incarnation", "region", "regions", "watermark", "why"})
"""Words for which there are others (docs/glossary.md)."""

NOT_IN_TEXT: Mapping[str, str] = {
    r"watermarks?": "merged position, durable position",
    r"dlqs?|dead[- ]letter queue": "dead letter",
    r"(?-i:deltas?)|log tails?": "unmerged rows",
    r"regions?(?![ -](?:keys?|states?)\b)": "partition",
    r"receipt's cuts?": "positions",
    r"incarnations?": "member, process",
    r"region index(?:es)?": "region state",
    r"memtables? snapshot": "flush",
}
"""What a person should not meet in a page or in ``--help``, as a pattern of whole words, and the word that is there for it."""
_AVOIDED = {word: re.compile(rf"\b(?:{word})\b", re.IGNORECASE) for word in NOT_IN_TEXT}

_STALENESS = "max_staleness"
"""The term for what a reader allows, as Spanner's users know it."""
_ROWS_A_BATCH = "max_rows_per_trigger"
"""The bound of a stream's batches, as users of Spark's sources know it: ``maxFilesPerTrigger``, ``maxOffsetsPerTrigger``."""


def wrong_with_name(name: str) -> Iterator[str]:
    """What a setting's, an option's or a field's name in snake case has that the rules do not allow."""
    words = name.replace(_STALENESS, "staleness").replace(_ROWS_A_BATCH, "rows_per_trigger").split("_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        yield "is not snake case"
    if avoided := NOT_IN_NAMES & set(re.sub(r"region_key", "", name).split("_")):
        yield f"says {sorted(avoided)}"
    if "max" in words[:-1] or "min" in words:
        yield "has max last, and no min"
    unit_at = len(words) - 1 - (words[-1] == "max")
    if OTHER_UNITS & set(words) or {"s", "ms"} & {word for at, word in enumerate(words) if at != unit_at}:
        yield "has its unit last, and one of the list"


def wrong_with_choice(choice: str) -> Iterator[str]:
    """The same of a value that is one of several."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", choice):
        yield "is not lower case with hyphens"
    if choice in READ_AS_SOMETHING_ELSE:
        yield "is read as something else by YAML"
    if avoided := NOT_IN_NAMES & set(choice.split("-")):
        yield f"says {sorted(avoided)}"


def avoided_in(text: str) -> list[str]:
    """Words to avoid in what a person reads, each with the one that is there for it."""
    found = [(found[0], NOT_IN_TEXT[word]) for word, pattern in _AVOIDED.items() for found in pattern.finditer(text)]
    return [f"{said!r}: say {instead}" for said, instead in found]


def prose_of(markdown: str) -> str:
    """A page without code, addresses and anchors: what stands there is somebody's name, or a stored one."""
    text = re.sub(r"^( *)```.*?^\1```", "", markdown, flags=re.M | re.S)
    text = re.sub(r"^ {4,}\S.*$", "", text, flags=re.M)
    text = re.sub(r"`[^`\n]*`", "", text)
    return re.sub(r"\]\([^)]*\)", "]", text)
