"""``python -m watch``: write the files that chart and compose use."""

from __future__ import annotations

from watch.files import ROOT, made

for file, text in made():
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    print(file.relative_to(ROOT))
