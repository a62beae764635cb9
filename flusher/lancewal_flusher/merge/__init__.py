"""One merge, from waiting generations to a finished commit.

``look`` reads the table's state, ``plan`` chooses generations, and ``first_seen`` remembers since when generations
wait.  ``inputs`` reads their flushes, and ``region_input`` those of one region, to adopt or rewrite them.
``origin_conflict`` finds keys that came through two regions, and ``set_aside`` keeps their records out of the merge.
``changes`` writes what the other records change, and ``merge`` commits.  ``settle`` carries out a person's decision
about records that were set aside.  ``finish`` does the work after the commit, with ``foreign_rows``.  ``explain``
shows the next merge without doing it.

May import: commit, context, origins, tasks, upkeep.
"""
