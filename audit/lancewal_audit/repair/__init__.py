"""Mending what services stop at; nothing is replaced, only added.

``context`` is what repairs work on, ``told`` what they tell.  ``log_survey``, ``topic_records``,
``generation_parts``, ``segment_loss`` and ``flush_state`` find what is left.  ``segment``, ``generation``, ``index``,
``lance_index``, ``watermark`` and ``restored`` are the repairs.

May import: nothing of this package.
"""
