"""Points in time that a read stands at.

A ``receipt`` says what a read saw, a ``token`` what one must see.  ``receipt_text`` is the short form of the one for
people and options, ``checked_text`` what both have in common.  ``at`` is what any read may be asked to stand at,
``read_options`` all that a read is asked for besides columns and filter.

May import: forms.
"""
