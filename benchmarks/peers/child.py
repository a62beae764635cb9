"""The process of a peer: ``python -m benchmarks.peers.child MODULE FOLDER``, in the peer's virtual environment.

A request is a line of JSON, ``{"act": ..., "rows": ...}``, on stdin.  The answer is a line on stdout with ``seconds``
and ``value``, or ``error``. All other output goes to stderr.  The process ends at the end of stdin.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any


def main(module: str, folder: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**content: Any) -> None:
        print(json.dumps(content), file=answers, flush=True)

    peer = import_module(module).open_peer(Path(folder))
    try:
        answer(value=peer.pids())
        for line in sys.stdin:
            request = json.loads(line)
            rows = [Path(request["rows"])] if "rows" in request else []
            start = time.perf_counter()
            try:
                value = getattr(peer, request["act"])(*rows)
            except Exception as error:
                traceback.print_exc()
                answer(error=f"{type(error).__name__}: {error}"[:500])
                continue
            answer(seconds=time.perf_counter() - start, value=value)
    finally:  # also where nobody takes the answer any more
        peer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
