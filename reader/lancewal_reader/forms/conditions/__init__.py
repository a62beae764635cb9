"""Parse a filter's text as one whole expression, and write the condition that Lance evaluates.

``grammar`` reads the text and writes the condition.  ``tokens`` divides the text, and ``limits`` counts its nesting.
A ``part`` is an expression in Lance's SQL.  ``comparisons`` writes a literal in the type of the column that it is
compared with, by ``exact_values``.  ``arithmetic`` computes without losing digits.  ``type_names`` has the types of
casts, ``functions`` the functions that a filter may call.

May import: forms.
"""
