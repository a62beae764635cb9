"""Tables as a whole: made, changed, filled in bulk, kept under a name, and shown.

``define`` makes and changes tables; ``load`` brings rows in bulk; ``snapshots`` keep a state under a name; ``status`` says
how far a table has come; ``commands`` are the doors.
"""
