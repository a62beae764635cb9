"""Points in time of reads.

A ``receipt`` says what a read saw, a ``token`` what a read must see.  ``checked_text`` encodes
both as one word with a checksum.  ``at`` has the points that a read may name.  ``read_options`` has the options of a
read besides columns and filter.

May import: forms.
"""
