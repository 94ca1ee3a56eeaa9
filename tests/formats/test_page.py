"""The page for browsers: what it says, that it is safe and stands alone, and what a real browser makes of it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from robustkpca.boards import Board, Cell, Column, Row, Table
from robustkpca.formats import render

COLUMNS = (
    Column("clean", ("clean",)),
    Column("pgd@linf:2/255", ("pgd@linf:2/255",)),
    Column("pgd@linf:4/255", ("pgd@linf:4/255",)),
    Column("published/pgd@linf:1/255", ("published/pgd@linf:1/255",)),
)
EVIL = "</script><img src=x onerror=alert(1)>\"'&"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def cell(value: float, protocol: str = "pixel", flags: tuple[str, ...] = ()) -> Cell:
    return Cell(value, value - 0.05, min(1.0, value + 0.05), 200, 200, protocol, flags=flags)


def table(name: str = "other") -> Table:
    first = Row(
        "m-1",
        "robust",
        0,
        (cell(0.9), cell(0.8), cell(0.7), cell(0.6, "published")),
        1,
        True,
        "ab" * 32,
        "robustkpca score m",
    )
    second = Row(
        "m-2", name, 0, (cell(0.95), cell(0.5, flags=("masked?",)), cell(0.2), cell(0.3, "published")), 1, True
    )
    third = Row(
        "m-3", "unfinished", 0, (cell(0.4), Cell(None, None, None, 3, 200, "pixel"), cell(0.1), cell(0.1, "published"))
    )
    return Table(Board("b", "Robust accuracy", COLUMNS), "digits-01", "digits", (first, second, third), ("a note",))


class Texts(HTMLParser):
    """Collects what a reader sees in the cells, and every address that would be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.loads: list[str] = []
        self.facts: list[dict[str, str]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [str(given[name]) for name in ("src", "href", "action") if name in given]
        if tag == "td":
            self._inside = True
            self.cells.append("")
        if "data-facts" in given:
            self.facts.append(dict(json.loads(str(given["data-facts"]))))

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.cells[-1] += data


def read(text: str) -> Texts:
    parser = Texts()
    parser.feed(text)
    return parser


def test_it_shows_every_number_with_its_interval_and_protocol() -> None:
    found = read(render([table()], "html"))
    assert [text.strip() for text in found.cells[:6]] == [
        "robust",
        "1 =",
        "90.085.0–95.0",
        "80.075.0–85.0",
        "70.065.0–75.0",
        "60.055.0–65.0",
    ]
    assert "197 of 200 missing" in found.cells[15]
    text = render([table()], "html")
    assert text.count("%, pixel") == 3
    assert text.count("%, published") == 1
    assert "a note" in text


def test_every_cell_carries_its_facts() -> None:
    facts = read(render([table()], "html")).facts
    assert len(facts) == 12
    assert facts[1]["again"] == "robustkpca score m --threats pgd@linf:2/255"
    assert facts[1]["checkpoint"] == f"sha256 {'ab' * 32}"
    assert facts[1]["samples"] == "200 of 200"
    assert facts[5]["remarks"] == "masked?"
    assert "again" not in facts[4]


def test_names_cannot_become_markup_and_nothing_is_loaded() -> None:
    text = render([table(EVIL)], "html")
    found = read(text)
    assert found.loads == []
    assert EVIL in [cell.strip() for cell in found.cells]
    assert found.facts[4]["model"] == EVIL
    assert not re.search(r"https?://|@import|url\(", text)
    assert text.count("</script>") == 1


def test_an_attack_at_growing_radii_is_a_curve() -> None:
    text = render([table()], "html")
    assert text.count("<figure>") == 1
    assert text.count("<polyline") == 3
    assert text.count("<circle") == 8  # three places for each of three rows, but for the number that is missing
    assert "radius in L-infinity" in text


def opened(tmp_path: Path, text: str, script: str, *options: str) -> str:
    """Return what a browser leaves in the element ``said`` after a script ran in the page."""
    place = tmp_path / "page.html"
    place.write_text(
        text.replace("</body>", f'<pre id="said"></pre><script>{script}</script></body>'), encoding="utf-8"
    )
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=2000",
        *options,
        "--dump-dom",
    ]
    done = subprocess.run([*command, place.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    said = re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.S)
    assert said
    return html.unescape(said[1])


needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
SAY = "const say = value => document.getElementById('said').textContent = JSON.stringify(value);"
NAMES = (
    "[...document.querySelectorAll('tbody tr')].filter(row => !row.hidden).map(row => row.cells[0].textContent.trim())"
)


@needs_browser
def test_a_browser_sorts_filters_and_shows_facts(tmp_path: Path) -> None:
    script = f"""{SAY}
    const names = () => {NAMES}, heads = document.querySelectorAll('thead th'), all = [];
    heads[2].querySelector('button').click(); all.push(names());
    heads[2].querySelector('button').click(); all.push(names());
    heads[0].querySelector('button').click(); all.push(names());
    const type = (id, text) => {{
      const field = document.getElementById(id); field.value = text; field.dispatchEvent(new Event('input')); }};
    type('find', 'ROB'); all.push(names()); type('find', '');
    type('protocol', 'published'); all.push([...heads].filter(head => !head.hidden).map(head => head.dataset.protocol || ''));
    type('protocol', ''); type('threat', '4/255'); all.push([...heads].filter(head => !head.hidden).length);
    type('threat', ''); document.querySelectorAll('td button')[0].click();
    all.push(document.querySelector('dialog').open, document.querySelector('dialog dd').textContent);
    say(all);"""
    found = json.loads(opened(tmp_path, render([table()], "html"), script))
    assert found[0] == ["other", "robust", "unfinished"]
    assert found[1] == ["unfinished", "robust", "other"]
    assert found[2] == ["other", "robust", "unfinished"]
    assert found[3] == ["robust"]
    assert found[4] == ["", "", "published"]
    assert found[5] == 3
    assert found[6:] == [True, "other"]


@needs_browser
@pytest.mark.parametrize("width", [380, 1300])
def test_nothing_sticks_out_on_narrow_and_wide_screens(tmp_path: Path, width: int) -> None:
    script = f"""{SAY}
    const wide = document.documentElement.clientWidth;
    const box = element => element.getBoundingClientRect(), rows = [...document.querySelectorAll('tr')];
    const out = [...document.querySelectorAll('main *')].filter(e => !e.closest('.wide') && box(e).right > wide + 1);
    const overlapping = rows.flatMap(row => [...row.cells].slice(1).filter((cell, i) =>
      box(cell).left < box(row.cells[i]).right - 1 && i > 0));
    say([out.map(e => e.tagName), overlapping.length, document.documentElement.scrollWidth <= wide]);"""
    found = json.loads(
        opened(
            tmp_path,
            render([table("a_very_long_name_of_a_model(with=arguments)")], "html"),
            script,
            f"--window-size={width},800",
        )
    )
    assert found == [[], 0, True]


@needs_browser
def test_an_evil_name_runs_nothing_in_a_browser(tmp_path: Path) -> None:
    script = f"{SAY} say([document.images.length, {NAMES}.length]);"
    assert json.loads(opened(tmp_path, render([table(EVIL)], "html"), script)) == [0, 3]
