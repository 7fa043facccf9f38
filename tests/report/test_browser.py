"""The report in a real browser: no errors, no horizontal scrolling, marks on every printed page."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from ipate.report.facts import for_audience
from ipate.report.page import page
from report.examples import facts, group

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=2000",
)
MEASURE = """<script>
const wide = [...document.querySelectorAll('body *')].filter(e => e.getClientRects().length &&
  !e.closest('thead') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName);
const small = [...document.querySelectorAll('svg text')].filter(e => e.getClientRects().length &&
  e.getBoundingClientRect().height < 9).map(e => e.textContent);
parent.postMessage(JSON.stringify({width: innerWidth, scroll: document.documentElement.scrollWidth, wide, small,
  page: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
  figures: [...document.querySelectorAll('figure svg')].filter(e => e.getClientRects().length).length}), '*');
</script></body>"""
FRAME = """<!DOCTYPE html><title></title><script>onmessage = event => { document.title = event.data; }</script>
<iframe src="measured.html" style="width: WIDTHpx; height: 900px; border: 0"></iframe>"""


def browse(path, folder, *options):
    ran = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", *options, path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "CONSOLE" not in ran.stderr
    return ran.stdout


def measure(text, folder, width, *, dark=False):
    """Measure a copy with an added script in a frame, because browser windows have a minimum width."""
    (folder / "measured.html").write_text(text.replace("</body>", MEASURE), encoding="utf-8")
    frame = folder / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    found = browse(frame, folder, "--dump-dom", "--window-size=1400,1000", *scheme)
    return json.loads(unescape(re.search(r"<title>(.*?)</title>", found, re.DOTALL)[1]))


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_page_fits_width_and_follows_colour_scheme(reported, tmp_path, width, dark):
    text = reported("private", compare=True).html.read_text(encoding="utf-8")
    found = measure(text, tmp_path, width, dark=dark)
    assert found["width"] == width
    assert found["scroll"] <= width
    assert found["wide"] == []
    assert found["small"] == []
    assert found["figures"] == 3
    light = sum(int(part) for part in re.findall(r"\d+", found["page"])[:3]) / 3
    assert (light < 60) is dark


def test_page_fits_long_names_and_many_groups(tmp_path):
    many = tuple(group("long" * 20 + str(index), budget=1 + index, cost_share=1 / 14) for index in range(14))
    text = page(for_audience(facts(groups=many, costs=[0.5] * 14), "public"))
    for width in (400, 1280):
        found = measure(text, tmp_path, width)
        assert (found["scroll"] <= width, found["wide"]) == (True, [])


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext is not installed")
def test_private_mark_repeats_on_every_printed_page(reported, tmp_path):
    report = reported("private", bound="exact", seed=3)
    browse(report.html, tmp_path, f"--print-to-pdf={tmp_path / 'report.pdf'}", "--no-pdf-header-footer")
    text = subprocess.run(
        ["pdftotext", str(tmp_path / "report.pdf"), "-"], capture_output=True, text=True, check=True
    ).stdout
    pages = text.rstrip("\f").split("\f")
    assert len(pages) > 2
    for sheet in pages:
        assert "PRIVATE: for the data owner only" in sheet
        assert "seeded: reproducible, not private" in sheet


def test_page_renders_to_a_screenshot(reported, tmp_path):
    report = reported()
    for width, scheme in ((1280, 1), (400, 0)):
        shot = tmp_path / f"{width}.png"
        options = (f"--window-size={width},1600", f"--blink-settings=preferredColorScheme={scheme}")
        browse(report.html, tmp_path, f"--screenshot={shot}", *options)
        assert shot.stat().st_size > 20_000
