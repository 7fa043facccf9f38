"""Check pages that ipate writes with axe-core in a real browser, in both colour schemes and at two widths.

It needs Chromium and axe-core, which is not a dependency: `npm install --prefix node axe-core`, and then
`python benchmarks/accessibility.py PAGE.html … --axe node/node_modules/axe-core/axe.min.js`. It prints every finding
with its impact, and fails on a serious or critical one.
"""

import argparse
import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SEVERE = ("serious", "critical")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=20000",
    "--dump-dom",
)
RUN = """<script>axe.run(document, {resultTypes: ['violations']}).then(found => {
  const told = {violations: found.violations.map(v => ({id: v.id, impact: v.impact, help: v.help,
    nodes: v.nodes.map(n => n.target.join(' '))})), passes: found.passes.length, version: axe.version};
  document.title = 'AXE' + btoa(unescape(encodeURIComponent(JSON.stringify(told)))) + 'END';
});</script></body>"""


def audit(page: Path, axe: Path, browser: str, *, width: int, dark: bool) -> dict[str, Any]:
    """Return what axe finds in a copy of the page, which carries the checker."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        script = f"<script>{axe.read_text(encoding='utf-8')}</script>"
        copy.write_text(text.replace("</body>", script + RUN), encoding="utf-8")
        options = [f"--window-size={width},1200", f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
        ran = subprocess.run(
            [browser, *FLAGS, f"--user-data-dir={folder}/profile", *options, copy.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    found = re.search(r"<title>AXE(.*?)END</title>", ran.stdout, re.DOTALL)
    if found is None:
        sys.exit(f"{page}: the checker did not answer")
    result: dict[str, Any] = json.loads(base64.b64decode(found[1]))
    return result


def main() -> None:
    """Check every page in four ways and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--axe", type=Path, required=True, help="axe.min.js of the npm package axe-core")
    given = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("Chromium is not installed")
    severe = 0
    for page in given.pages:
        for width, dark in ((1280, False), (1280, True), (500, False), (500, True)):
            found = audit(page, given.axe, browser, width=width, dark=dark)
            scheme = "dark" if dark else "light"
            print(
                f"{page} {width} px {scheme}: axe {found['version']}, {found['passes']} rules passed, "
                f"{len(found['violations'])} violated"
            )
            for entry in found["violations"]:
                severe += entry["impact"] in SEVERE
                print(f"  {entry['impact']}: {entry['id']}: {entry['help']} ({', '.join(entry['nodes'][:3])})")
    print(f"{severe} serious or critical findings")
    sys.exit(1 if severe else 0)


if __name__ == "__main__":
    main()
