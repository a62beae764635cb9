"""The measured process of ``benchmarks.merge_large``: it does what ``lancewal merge`` does, and reports its peak memory."""

from __future__ import annotations

import json
import sys

from lancewal_core.settings.load import Settings
from lancewal_demo.stack.resident_memory import resident_bytes
from lancewal_flusher.service.service import run_once


def main(table: str) -> None:
    run_once(Settings.model_validate({"table": {"uri": table}}))
    print(json.dumps({"peak_mib": resident_bytes("VmHWM") / (1 << 20)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
