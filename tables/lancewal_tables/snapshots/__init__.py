"""Named snapshots: the merged and unmerged rows of one point, as a branch of the Lance table.

``make`` makes a snapshot of one table, and ``together`` makes snapshots of several tables at the same positions.  The
flusher drops snapshots when their time is over.

May import: nothing of this package.
"""
