"""The flusher: merges flushes into tables, and keeps tables fast.

``merge`` plans and finishes merges, whose ``tasks`` run on threads or Spark and whose ``commit`` is one; ``upkeep``
compacts, expires and keeps indexes; ``garbage`` removes; ``service`` does all this in turns, ``commands`` are the doors.
``context`` carries everything with an effect, and ``open`` makes one from settings; ``origins`` says what is recorded of
the regions through which keys came, ``event_table`` what is logged.
"""
