"""``python -m watch``: write the generated files that the chart and docker-compose.yml use."""

from __future__ import annotations

from watch.files import ROOT, made

for file, text in made():
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    print(file.relative_to(ROOT))
