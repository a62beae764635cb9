"""Tables as a whole: create them, change them, load rows in bulk, keep a state under a name, and show the progress.

``define`` creates and changes tables, ``load`` loads rows in bulk, and ``snapshots`` keeps a state under a name.
``status`` shows the positions and the lag of each partition.  ``catalog`` holds tables by name, and ``cuts`` keeps states of
several tables that are read together.  ``commands`` are the entry points.
"""
