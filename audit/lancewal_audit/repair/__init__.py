"""Repair damage that stops services.  Objects are only added, never replaced.

``context`` opens the table for repairs, and ``told`` formats their reports.  ``log_survey``, ``topic_records``,
``generation_parts``, ``segment_loss`` and ``flush_state`` find out what is left.  ``segment``, ``generation``, ``index``,
``lance_index``, ``watermark`` and ``restored`` are the repairs.

May import: taken_versions.
"""
