"""Points in time of reads.

A ``receipt`` says what a read saw, a ``token`` what a read must see.  ``receipt_text`` is the short form of a receipt
for people and options.  ``checked_text`` encodes receipts and tokens with a checksum.  ``at`` has the points that a
read may name.  ``read_options`` has the options of a read besides columns and filter.

May import: forms.
"""
