"""The looks of the status page, light and dark, as one style sheet: no script, no font and no picture from anywhere.

The page carries it, and its Content-Security-Policy names it by its hash, so that nothing else that got into the page could
be a style.
"""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root{color-scheme:light dark;--back:#f6f7f9;--card:#fff;--text:#1b2330;--soft:#5b6778;--line:#dfe4ea;--problem:#b3261e;
--problem-back:#fdecea;--waits:#8a5a00;--waits-back:#fff4db;--moving:#1f5fbf;--moving-back:#e6effc;--idle:#23703c;--idle-back:#e6f4ea}
@media (prefers-color-scheme:dark){:root{--back:#12161c;--card:#1a2029;--text:#e4e9f0;--soft:#9aa7b8;--line:#2c3542;
--problem:#ff8a80;--problem-back:#3a1d1d;--waits:#ffc966;--waits-back:#362a12;--moving:#8ab8ff;--moving-back:#16283f;
--idle:#7bd69a;--idle-back:#15301f}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1280px;margin:0 auto;padding:20px 20px 48px}
header{display:flex;flex-wrap:wrap;gap:6px 12px;align-items:baseline;margin-bottom:14px}
h1{font-size:20px;margin:0;font-weight:650}
h2{font-size:15px;margin:26px 0 8px;font-weight:650}
.soft{color:var(--soft)}
code{font:12.5px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:0 0 10px;
overflow-wrap:anywhere}
.card p{margin:8px 0 0}
.card.problem{border-left:4px solid var(--problem)}
.card.waits{border-left:4px solid var(--waits)}
.card.moving{border-left:4px solid var(--moving)}
.card.idle{border-left:4px solid var(--idle)}
.state{display:inline-block;border-radius:10px;padding:1px 9px;font-size:12px;font-weight:600;white-space:nowrap}
.state.problem{color:var(--problem);background:var(--problem-back)}
.state.waits{color:var(--waits);background:var(--waits-back)}
.state.moving{color:var(--moving);background:var(--moving-back)}
.state.idle{color:var(--idle);background:var(--idle-back)}
ol.way{list-style:none;display:flex;flex-wrap:wrap;gap:4px;padding:0;margin:12px 0 0}
ol.way li{padding:2px 10px;border-radius:6px;border:1px solid var(--line);color:var(--soft);font-size:12.5px}
ol.way li.here{font-weight:650;color:var(--text);border-color:currentColor}
ol.way li+li::before{content:"\\2192";margin:0 8px 0 -2px;color:var(--soft);font-weight:400}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 16px;margin:0}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{padding:3px 8px;text-align:left;white-space:nowrap;border-top:1px solid var(--line)}
thead th{border-top:0;color:var(--soft);font-weight:600;font-size:12px}
.n{text-align:right;font-variant-numeric:tabular-nums}
tr.problem td:first-child{box-shadow:inset 3px 0 var(--problem)}
td.owner{max-width:13em;overflow:hidden;text-overflow:ellipsis}
ul{margin:0;padding-left:18px}
footer{margin-top:28px;color:var(--soft);font-size:12.5px}
"""

_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing is loaded, run, sent or framed."""
