"""How lancewal is watched, as code.

``alerts`` has the rules, ``dashboards`` the boards, ``promql`` what their expressions name, ``files`` says what is made of
them: ``python -m watch`` writes it.  The chart and docker-compose.yml use the written files, which are committed.
"""
