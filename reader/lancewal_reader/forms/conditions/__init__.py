"""A filter as text: read as one whole expression, and written for Lance.

``grammar`` reads the text and writes the condition.  ``tokens`` divides the text, and ``limits`` counts its nesting.
A ``part`` is an expression in Lance's SQL.  ``comparisons`` write literals beside columns, by ``exact_values``;
``arithmetic`` keeps its digits.  ``type_names`` are those of casts, ``functions`` the calls that are allowed.

May import: forms.
"""
