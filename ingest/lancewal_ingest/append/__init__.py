"""From consumed records to a durable segment.

``pending`` records wait for a segment.  ``prepare`` decodes and routes them into entries (``routing``, ``draining``),
and applies the policies for bad records.  ``job`` sends the dead letters, and then makes the entries durable in one
segment.  ``newer_contract`` finds newer contract versions that a running process can follow.  ``new_columns`` adds
columns that the schemas of records have and the table lacks.  ``new_key_form`` adds a table's first key form, the
schema of its record keys, to the contract.  ``stops``: stops of partitions, and their errors.  ``shared_rows``: rows
of several entries in one batch.  ``segment_in_flight`` repeats a job until its outcome is known.  ``bundling`` copies
durable segments for distant readers.

May import: context, decode, envelopes, formats, kafka, observer.
"""
