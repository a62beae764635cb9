"""Object storage: the interface, its implementations, and the forms of small objects.

``object_store`` is the protocol with its three outcomes, and ``versioned`` the compare-and-swap loop.  ``folder``
serves a table in a local folder, ``obstore`` all others.  ``refusal`` says what a person must set if the store refuses
access.  ``observed`` counts and times requests.  ``address`` says where a table lies, and ``schemes`` how the kinds of
stores differ.  ``object_kinds`` lists the kinds of objects, and how large one may be.  ``json_object`` and
``json_model`` read stored JSON strictly, and ``arrow_message`` looks into Arrow without unpacking it.

May import: errors, names, process.
"""
