"""One merge, from what waits to what is finished.

``look`` finds what is there, ``plan`` chooses generations (``first_seen`` since when they wait), ``inputs`` has them read
(``region_input``: to be adopted, or written anew),
``origin_conflict`` asks whether they may be merged, ``set_aside`` keeps what may not, ``changes`` writes what the rest
changes, ``merge`` commits; ``settle`` decides what was set aside; ``finish`` does what remains, ``foreign_rows`` among it;
``explain`` shows the next merge without doing it.

May import: commit, context, origins, tasks, upkeep.
"""
