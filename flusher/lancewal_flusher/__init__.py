"""The flusher: merges flushes into tables, and keeps tables fast.

``merge`` plans and finishes merges; their ``tasks`` run on threads or Spark, and their ``commit`` is one.  ``upkeep``
compacts, expires and maintains indexes.  ``garbage`` removes what nobody needs.  ``service`` does all this in turns,
and ``commands`` are the other entry points.  ``context`` carries everything with an effect, and ``open`` makes one
from settings.  ``origins`` records the regions through which keys came.  ``event_table`` lists the log events.
"""
