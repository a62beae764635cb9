"""One merge, from what waits to what is finished.

``look`` finds what is there, ``plan`` chooses generations, and ``first_seen`` knows since when they wait.  ``inputs``
has them read, and ``region_input`` reads them, to be adopted or rewritten.  ``origin_conflict`` asks whether they may
be merged, and ``set_aside`` keeps records that may not.  ``changes`` writes what the other records change, and
``merge`` commits.  ``settle`` decides about records that were set aside.  ``finish`` does what remains,
``foreign_rows`` among it.  ``explain`` shows the next merge without doing it.

May import: commit, context, origins, tasks, upkeep.
"""
