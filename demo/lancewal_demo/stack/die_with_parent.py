"""Become another program that dies with its parent: ``python -I -S die_with_parent.py PARENT_PID PROGRAM ARGUMENTS...``.

Linux sends SIGKILL to this process as soon as the parent *thread* that started it has ended, also when the parent was
killed with -9.  The setting stays in force after ``exec``.  This is a program of its own, not a ``preexec_fn``: Python
code between fork and exec may deadlock in a parent that has threads (Arrow, librdkafka and Spark's gateway start some).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, program: list[str]) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        # The parent died before prctl: no signal will come.
        sys.exit("the parent process is gone")
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
