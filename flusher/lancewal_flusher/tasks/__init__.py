"""Tasks, each the work of a merge on one fragment or of a compaction on one group of fragments, and the runners that
run them.

``cost`` chooses a strategy; ``merge_task`` (with ``in_place``) and ``rewrite_task`` do the work.  A ``runner`` runs
tasks on threads, or on Spark (``spark_session``, ``spark_runner``, ``spark_slice``), to which a ``parcel`` carries
them.  ``progress`` and ``spark_progress`` show their progress.

May import: event_table.
"""
