"""From consumed records to a durable segment.

``pending`` records wait for a segment.  ``prepare`` decodes and routes them into entries (``routing``, ``draining``),
and ``job`` makes these durable in one segment.  ``newer_contract``: versions that are taken up meanwhile.
``new_columns``: columns that records' schemas have and the table lacks.  ``new_key_form``: the first form of a table's keys.
``stops``: stops of partitions, and their errors.  ``shared_rows``: rows of several entries in one batch.
``segment_in_flight`` repeats a job until its outcome is known.
``bundling`` copies durable segments for far readers.

May import: context, decode, envelopes, formats, kafka, observer.
"""
