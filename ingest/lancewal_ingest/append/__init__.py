"""From consumed records to a durable segment.

``pending`` records are decoded and routed (``routing``, ``draining``) into entries by ``prepare``, whose rows are
``shared_rows``, for a ``job``, and those to be put aside sent as ``observed_dead_letters``; ``segment_in_flight`` puts its
segment until the outcome is known, and ``bundling`` copies what became durable for far readers.

May import: context, decode, formats, kafka.
"""
