"""Named snapshots: table and unmerged rows of one point, as a branch of the Lance table.

``make`` makes one, ``together`` makes those of several tables at one vector of positions.  The flusher drops them
when their time is over.

May import: nothing of this package.
"""
