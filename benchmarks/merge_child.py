"""The measured process of ``benchmarks.merge_large``: what ``lancewal flush --once`` does, and the most memory it had."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lancewal_core.settings import Settings
from lancewal_flusher.service import run_once


def main(table: str) -> None:
    run_once(Settings.model_validate({"table": {"uri": table}}))
    print(json.dumps({"peak_mib": _peak_kib() / 1024}))


def _peak_kib() -> int:
    """Of this program alone: ``ru_maxrss`` would count the parent's memory as of the moment of the fork."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/status has no VmHWM")


if __name__ == "__main__":
    main(*sys.argv[1:])
