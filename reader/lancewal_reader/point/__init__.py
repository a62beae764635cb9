"""Points in time of reads.

A ``receipt`` says what a read saw, a ``token`` what a read must see.  ``receipt_text`` is the short form of a receipt
for people and options, and ``checked_text`` is common to receipts and tokens.  ``at`` is the point that any read may
be asked for.  ``read_options`` has all that a read is asked for besides columns and filter.

May import: forms.
"""
