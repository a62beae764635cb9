"""Figures about the source: its size, its prose, its structure, its tests.  ``python3 dev.py measure [COMMIT]`` prints them.

``tree`` reads the files of a commit or of the working tree.  ``lines`` counts code, docstrings, comments and blanks.
``texts`` finds docstrings and checks them against the rules of plain English.  ``structure`` finds imports, circles,
classes, functions and folders.  ``seconds`` sums what a test run took.
"""
