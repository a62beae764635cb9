"""Where in time a read stands.

A ``receipt`` says what a read saw; ``receipt_text`` is its short form for people and options, and ``at`` what any read may
be asked to stand at.  ``read_options`` is all that a read is asked for besides columns and filter.

May import: nothing of this package.
"""
