"""From consumed records to a durable segment.

``prepare`` decodes and routes ``pending`` records (``routing``, ``draining``) into entries for a ``job``.  The rows
of entries are ``shared_rows``.  Records to be put aside are sent as ``observed_dead_letters``.  ``segment_in_flight``
puts the segment until the outcome is known.  ``bundling`` copies durable segments for far readers.

May import: context, decode, formats, kafka.
"""
