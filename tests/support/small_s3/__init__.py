"""A small S3 in memory, which waits before each request and writes down when it began and ended.

``requests`` is what it writes down; ``buckets`` are the objects; ``server`` answers over HTTP, in a thread of this process
or, for benchmarks, as a process of its own (``child``).

May import: nothing of the project but the demo's stack.
"""
