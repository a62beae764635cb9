"""The measured process of ``benchmarks.merge_large``: what ``lancewal flush --once`` does, and the most memory it had."""

from __future__ import annotations

import json
import sys

from benchmarks.peak_memory import peak_mib
from lancewal_core.settings import Settings
from lancewal_flusher.service import run_once


def main(table: str) -> None:
    run_once(Settings.model_validate({"table": {"uri": table}}))
    print(json.dumps({"peak_mib": peak_mib()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
