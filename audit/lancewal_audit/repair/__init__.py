"""Repair damage that stops services; nothing is replaced, only added.

``context`` has what repairs work on, and ``told`` their reports.  ``log_survey``, ``topic_records``,
``generation_parts``, ``segment_loss`` and ``flush_state`` find what is left.  ``segment``, ``generation``, ``index``,
``lance_index``, ``watermark`` and ``restored`` are the repairs.

May import: nothing of this package.
"""
