"""Names that commands and options had before, and what takes their place.

A name that is gone is an error that says the new one: who has it in a script or in the fingers need not look it up.
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "flush": "`lancewal flusher run` is the service, `lancewal merge` one turn to its end",
    "offsets": "it is `lancewal offset`",
    "conflicts": "it is `lancewal conflict`",
    "load": "it is `lancewal table load`",
    "show": "it is `lancewal table show`",
    "attach": "it is `lancewal table attach`",
    "export-memwal": "it is `lancewal table export-memwal`",
    "table rebind": "it is `lancewal table alter --topic-id`",
    "repair snapshot": "it is `lancewal repair generation`",
    "repair lance-index": "it is `lancewal repair index`",
    "repair watermark": "it is `lancewal repair merged-position`",
}
"""Words behind ``lancewal``."""

OPTIONS: Mapping[str, str] = {
    "flusher run --once": "one turn to its end is `lancewal merge`",
    "flusher run --dry-run": "what the next merge would do says `lancewal merge --dry-run`",
    "inspect --region": "it is --partition: 3, or orders-3",
    "verify --region": "it is --partition: 3, or orders-3",
    "read --store-option": "it is --storage-option",
    "table alter --ttl-s": "it is --ttl, with its unit: 30d",
    "table load --keep": "it is --duplicates",
    "repair region --above": "it is --version-seen",
    "repair restored --after-restore": "it is --rows-since: drop for keep, or replay",
    "repair merged-position --accept": "without --dry-run the conclusion is recorded",
}
"""The command, and its option."""
