"""The flusher: merges flushes into tables, and keeps tables fast.

``merge`` plans and finishes merges.  Their ``tasks`` run on threads or Spark, and ``commit`` sends each merge as one
commit.  ``upkeep`` compacts, expires and maintains indexes.  ``garbage`` deletes objects that are no longer needed.
``cuts`` finds positions at which several tables are read together, and ``catalog`` compares a catalog with folders.
``service`` runs all this in turns, and ``commands`` holds the commands.  ``context`` carries the open table and all
that has effects, such as store, clock and tasks, and ``open`` makes a context from settings.  ``origins`` records the
regions through which keys came.  ``event_table`` lists the log events.
"""
