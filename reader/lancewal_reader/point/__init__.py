"""Where in time a read stands.

A ``receipt`` says what a read saw; ``receipt_text`` is its short form for people and options, and ``at`` what any read may
be asked to stand at.

May import: nothing of this package.
"""
