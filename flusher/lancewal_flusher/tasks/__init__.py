"""What a merge or compaction does to one fragment, as values, and where these run.

``cost`` chooses, ``merge_task`` (with ``in_place``) and ``rewrite_task`` do it; a ``runner`` runs them: threads, or
Spark (``spark_session``, ``spark_runner``, ``spark_slice``), to which a ``parcel`` carries them; ``progress`` and
``spark_progress`` show how far they are.

May import: event_table.
"""
