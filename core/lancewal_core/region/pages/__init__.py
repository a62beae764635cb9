"""How the states of many regions lie in few objects.

``state_page`` is one version of a page: a head, and a record of each region; ``page_chain`` finds a page's newest version
and swaps it for the next.

May import: errors, ids, paths, process, proto, store, words.
"""
