"""The documentation is true: every command and every block of Python in it runs, and every name in it exists.

Commands of robustkpca run in this process, page by page from top to bottom, in a folder that holds what the pages speak of.
A block after ``<!-- file: PATH -->`` is written there; one after ``<!-- line: PATH -->`` is put into that catalogue.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy
import pytest
import torch
from PIL import Image

import robustkpca
from robustkpca import evaluation, registry
from robustkpca.boards import find_board
from robustkpca.calls import Call, complete, format_value
from robustkpca.commands import KINDS, cli
from robustkpca.data.selection import selection
from robustkpca.errors import BadValue
from robustkpca.indicators import FLAGS
from robustkpca.installed import installed
from robustkpca.matrix import Matrix
from robustkpca.models import create_model
from robustkpca.models.mechanisms import ATTENTIONS
from robustkpca.recipes import PRESETS
from robustkpca.records import RunHeader
from robustkpca.registry import Entry
from robustkpca.threats import ThreatModel

ROOT = Path(__file__).parent.parent
CHECKOUT = (ROOT / "attacks").is_dir()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if CHECKOUT or page.exists()]  # beside an installed wheel only some are there
SAMPLES = 8
"""More are not taken, whatever a page asks for; the pages are about commands, not about numbers."""

NOT_RUN = {
    "python3 -m venv": "installs from the network; CI runs the two commands of the README",
    "pip install": "installs; here the files of the page are announced as an installed package instead",
    "python -m pytest": "this is it",
    ".ci/run": "runs these tests",
    "ruff check": "CI runs it",
    "ruff format": "CI runs it",
    "mypy": "CI runs it",
    "robustkpca score efficientnet_lite0": "needs the extra 'models'; tests/test_real_data.py runs it where it is installed",
    "python benchmarks/": "trains or measures for minutes",
    "python docs/picture.py": "changes the README; what it wrote is compared with the picture below",
}
"""Commands that are left out, by their beginning, and why."""

BLOCK = re.compile(r"(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.S | re.M)
MODEL = re.compile(r"((rpc_sym|sym|softmax_|scaled_)?vit|(rpc_|sym)?fan)_(?!\*)\w+(\(.*\))?$")
CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block, with the mark in the comment above it."""

    kind: str
    mark: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block; of a console block, what stands behind ``$``."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.kind == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["kind"], match["mark"] or "", match["text"]) for match in found]


def marked(mark: str) -> dict[str, str]:
    """Return the texts between ``<!-- MARK NAME -->`` and the next closing comment, by name, over all pages."""
    found = {}
    for page in PAGES:
        for match in re.finditer(rf"(?s)<!-- {mark}:? ?([\w-]*) -->(.*?)<!-- /", page.read_text(encoding="utf-8")):
            found[match[1]] = match[2]
    return found


def rows(table: str) -> list[list[str]]:
    """Return the cells of a markdown table, without its head."""
    lines = [line for line in table.strip().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def first_column(table: str) -> list[str]:
    """Return every code span in the first column of a table."""
    return [name for cells in rows(table) for name in CODE.findall(cells[0])]


def inline(page: Path) -> list[str]:
    """Return the code spans of a page outside its blocks, and the words of its commands."""
    spans = CODE.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    commands = [line for block in blocks(page) if block.kind in ("bash", "console") for line in block.commands]
    return spans + [word for line in commands if line.startswith("robustkpca ") for word in shlex.split(line)]


def added_by_pages() -> set[str]:
    """Return the names that pages add themselves, to show how."""
    texts = [block.text for page in PAGES for block in blocks(page) if block.mark.startswith(("line:", "file:"))]
    return {name for text in texts for name in re.findall(r'"([\w-]+)": Entry\(', text)}


ADDED = added_by_pages()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with what the pages speak of: photos, a network with a checkpoint, some of ImageNet, weights of timm."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rng = numpy.random.default_rng(0)
    for index in range(10):
        _picture(tmp_path / "photos" / f"class{index}" / "0.png", rng, (44, 40))
    for wnid in ("n01440764", "n01443537"):
        _picture(tmp_path / "imagenet" / "val" / wnid / "0.JPEG", rng, (270, 260))
    (net,) = (block for block in blocks(ROOT / "README.md") if block.mark == "file: net.py")
    (tmp_path / "net.py").write_text(net.text)
    weights = create_model("net.py:build").state_dict()
    torch.save({"model": weights, "args": argparse.Namespace(epochs=1)}, tmp_path / "net.pth")
    torch.save(create_model("timm/mobilenetv3_small_100").state_dict(), tmp_path / "mobilenet.pth")

    monkeypatch.setattr(evaluation, "selection", lambda ids, limit: selection(ids, min(limit or SAMPLES, SAMPLES)))
    before, threads = set(sys.modules), torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are tiny; more threads wait for each other
    yield tmp_path
    torch.set_num_threads(threads)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    registry.refresh()


def _picture(path: Path, rng: numpy.random.Generator, size: tuple[int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=numpy.uint8)).save(path)


def _write(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a file of a page where it says; a package is announced as if it were installed."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if name == "pyproject.toml":
        points = re.findall(r'\[project\.entry-points\."([\w.]+)"\]\n(\w+) = "([\w.:]+)"', text)
        info = folder / "mypackage-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text("".join(f"[{g}]\n{n} = {v}\n" for g, n, v in points))
        importlib.invalidate_caches()
        registry.refresh()
    elif name.startswith(("attacks/", "corruptions/", "leaderboards/", "robustkpca/models/")):
        wing = importlib.import_module(_module(name))
        monkeypatch.setattr(wing, "__path__", [*wing.__path__, str(path.parent)])
    elif name.startswith("test_"):
        checks: dict[str, Any] = {}
        exec(compile(text, str(path), "exec"), checks)
        for check in [value for key, value in checks.items() if key.startswith("test_")]:
            check()


def _module(path: str) -> str:
    """Return the package of a file of the repository; the wings are installed inside the core."""
    package = path.rpartition("/")[0].replace("/", ".")
    return package if package.startswith("robustkpca") else f"robustkpca.{package}"


def _add_line(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, entry in eval(f"{{{text}}}", {"Entry": Entry}).items():
        monkeypatch.setitem(importlib.import_module(_module(name)).CATALOGUE, key, entry)
    registry.refresh()


def _run(command: str) -> None:
    if command.startswith(tuple(NOT_RUN)):
        return
    words = shlex.split(command)
    assert words[0] == "robustkpca", f"{command!r} can neither be run here nor stands in NOT_RUN"
    code = cli.main(words[1:], prog_name="robustkpca", standalone_mode=False)
    assert code in (0, None), f"{command!r} ends with exit code {code}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_everything_on_a_page_runs(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        what, _, place = block.mark.partition(": ")
        if what == "file":
            _write(folder, place, block.text, monkeypatch)
        elif what == "line":
            _add_line(place, block.text, monkeypatch)
        elif block.kind == "python":
            exec(compile(block.text, page.name, "exec"), names)
        elif block.kind in ("bash", "console"):
            for command in block.commands:
                _run(command)


def test_the_checks_see_what_the_pages_hold() -> None:
    readme = blocks(ROOT / "README.md")
    assert [block.mark for block in readme[:2]] == ["command: leaderboard", "command: tests"]
    assert all(len(block.commands) == 1 for block in readme[:2])
    assert sum(len(block.commands) for page in PAGES for block in blocks(page) if block.kind == "bash") > 30
    for page in PAGES:
        assert page.read_text(encoding="utf-8").count("\n```") == 2 * len(blocks(page)), f"{page.name}: a block is lost"


def test_the_two_commands_are_those_that_were_promised() -> None:
    texts = {block.mark: block.text.strip() for block in blocks(ROOT / "README.md")}
    venv = "python3 -m venv .venv && .venv/bin/pip install"
    assert texts["command: leaderboard"] == f"{venv} . && .venv/bin/robustkpca score"
    assert texts["command: tests"] == f'{venv} -e ".[dev]" -c constraints.txt && .venv/bin/python -m pytest'


def test_no_command_is_left_out_that_no_page_has() -> None:
    if not CHECKOUT:
        pytest.skip("some pages are not here")
    written = [line for page in PAGES for block in blocks(page) if block.kind == "bash" for line in block.commands]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in written)] == []


def _options() -> set[str]:
    """Return every long option of every command."""
    commands = [cli, *cli.commands.values()]
    declared = [option for command in commands for parameter in command.params for option in parameter.opts]
    return {option for option in declared if option.startswith("--")} | {"--help", "--version"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_option_on_a_page_exists(page: Path) -> None:
    mentioned = {option for span in inline(page) for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}
    assert mentioned - _options() == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_threat_on_a_page_exists(page: Path) -> None:
    for span in inline(page):
        name = re.match(r"(?:published/)?([\w/-]+)(?:\(.*\))?@(?:linf|l2|l1):[\d./]+$", span)
        if name and name[1].startswith("torchattacks/") and not installed("torchattacks"):
            assert name[1] in registry.entries("attacks")
        elif name and name[1].removeprefix("mypackage/") not in ADDED:
            ThreatModel.parse(span)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_model_on_a_page_can_be_built(page: Path) -> None:
    for text in {span for span in inline(page) if re.match(MODEL, span)}:
        call = Call.parse(text)
        small = {} if call.name.endswith("_digits") else {"embed_dim": 24, "num_heads": 3, "img_size": 32}
        create_model(text, **small)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_board_and_benchmark_in_a_command_exists(page: Path) -> None:
    groups = {"--board": "leaderboards", "--benchmark": "benchmarks"}
    for command in [line for block in blocks(page) if block.kind in ("bash", "console") for line in block.commands]:
        words = shlex.split(command)
        for option, word in pairwise(words):
            if option in groups:
                registry.find(groups[option], word)


@pytest.mark.parametrize("group", sorted(set(KINDS.values())))
def test_tables_of_names_are_complete(group: str) -> None:
    assert first_column(marked("names")[group]) == [name for name, e in registry.entries(group).items() if not e.engine]


@pytest.mark.parametrize("engine", ["pyautoattack", "torchattacks"])
def test_tables_of_the_attacks_of_other_packages_are_complete(engine: str) -> None:
    entries = {name: one for name, one in registry.entries("attacks").items() if one.engine == engine}
    assert {name.partition("/")[0] for name in entries} == {engine}
    table = {}
    for names, norms, *_ in rows(marked("names")[engine]):
        table |= {name: norms for name in CODE.findall(names)}
    spelled = {"linf": "Linf", "l2": "L2", "l1": "L1"}
    assert table == {
        name.partition("/")[2]: ", ".join(spelled[tag] for tag in one.tags if tag in spelled)
        for name, one in entries.items()
    }


def test_the_table_of_flags_is_complete() -> None:
    assert first_column(marked("flags")["audit"]) == list(FLAGS)


def test_official_attacks_have_the_options_of_ours() -> None:
    for name, entry in registry.entries("attacks").items():
        ours = name.removeprefix("pyautoattack/")
        if entry.engine == "pyautoattack" and ours in registry.entries("attacks"):
            assert _defaults(entry.load()).items() <= _defaults(registry.find("attacks", ours).load()).items(), name


def _defaults(function: Callable[..., Any]) -> dict[str, str]:
    given = {"model", "images", "labels", "budget", "draws", "severity"}
    parameters = {name: p for name, p in inspect.signature(function).parameters.items() if name not in given}
    return {name: format_value(parameter.default) for name, parameter in parameters.items()}


def test_the_options_of_attacks_are_those_in_the_table() -> None:
    written: dict[tuple[str, bool], dict[str, str]] = {}
    for attack, option, pixel, published, _ in rows(marked("options")["attacks"]):
        for default, form in ((pixel, False), (published, True)):
            if default:
                written.setdefault((attack.strip("`"), form), {})[option.strip("`")] = default.strip("`")
    own = {name: entry for name, entry in registry.entries("attacks").items() if not entry.engine}
    for name, entry in own.items():
        for form in (False, True) if entry.published else (False,):
            assert written.get((name, form), {}) == _defaults(entry.load(published=form)), name


@pytest.mark.parametrize("name", ["softmax_vit_tiny", "rpc_symvit_tiny"])
def test_the_arguments_of_models_are_those_in_the_table(name: str) -> None:
    tables = marked("arguments")
    written = {argument.strip("`"): default.strip("`") for argument, default, _ in rows(tables[name])}
    if name.startswith("rpc"):
        general = {argument.strip("`"): default.strip("`") for argument, default, _ in rows(tables["softmax_vit_tiny"])}
        written = general | written
    full = complete(Call.parse(name), registry.find("models", name).load(), "model")
    assert written == {argument: format_value(value) for argument, value in full.arguments.items()}


def test_every_attention_is_in_the_tables_with_its_options() -> None:
    assert first_column(marked("names")["attentions"]) == list(ATTENTIONS)
    written: dict[str, dict[str, str]] = {name: {} for name in ATTENTIONS}
    for attention, option, default, _ in rows(marked("options")["attentions"]):
        written[attention.strip("`")][option.strip("`")] = default.strip("`")
    for name, mechanism in ATTENTIONS.items():
        assert written[name] == {option: format_value(p.default) for option, p in mechanism.options().items()}, name


def test_the_recipes_are_those_in_the_table() -> None:
    table = {cells[0].strip("`"): cells[1:-1] for cells in rows(marked("arguments")["recipe"])}
    written = {field: [cell.strip("`") for cell in cells] for field, cells in table.items()}
    presets = [asdict(recipe) for recipe in PRESETS.values()]
    assert written == {name: [format_value(preset[name]) for preset in presets] for name in presets[0]}


def test_columns_and_fields_are_those_in_the_tables(folder: Path) -> None:
    frame = robustkpca.score("symvit_digits", "clean", limit=2)
    assert sorted(first_column(marked("columns")["records"])) == sorted(frame.columns)
    written = marked("fields")
    assert sorted(first_column(written["header"])) == sorted(field.name for field in fields(RunHeader))
    assert sorted(first_column(written["config"])) == sorted(Matrix.model_fields)


def _modules(root: Path) -> dict[str, ast.Module]:
    return {
        path.relative_to(root).as_posix(): ast.parse(path.read_text("utf-8")) for path in sorted(root.rglob("*.py"))
    }


def test_the_architecture_lists_every_module_of_the_core_in_the_order_of_imports() -> None:
    root = Path(robustkpca.__file__).parent
    wings = ("attacks/", "corruptions/", "leaderboards/")  # inside an installed package
    trees = {name: tree for name, tree in _modules(root).items() if not name.startswith(wings)}
    listed = first_column(marked("modules")[""])
    assert sorted(listed) == sorted(trees)
    for place, name in enumerate(listed):
        above = {other.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for other in listed[:place]}
        for module in _imported(trees[name]):
            assert module in above, f"{name} imports {module}, which does not stand above it"


def _imported(tree: ast.AST) -> set[str]:
    """Return what a module imports from the core, also inside functions, but not for annotations alone."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "robustkpca":
            module = node.module.removeprefix("robustkpca").removeprefix(".")
            found |= {module} if module else {alias.name for alias in node.names}
        found |= _imported(node)
    return found


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    if not CHECKOUT:
        pytest.skip("the pages are not in a checkout, so what they link to is elsewhere")
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file) if file else page
        assert path.exists(), f"{page.name} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
            assert anchor in map(_anchor, titles), f"{page.name} links to {target}"


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+\.\d", text)


def test_the_picture_shows_the_numbers_of_the_table() -> None:
    written = [number for cells in rows(marked("leaderboard")[""]) for cell in cells[2:] for number in _numbers(cell)]
    drawn = re.sub(r"<(style|defs).*?</\1>", "", (ROOT / "docs" / "leaderboard.svg").read_text("utf-8"), flags=re.S)
    shown = [number for text in re.findall(r">([^<]+)</text>", drawn) for number in _numbers(text)]
    assert len(written) == 54
    assert sorted(number for number in shown if number in written) == sorted(written)


def test_the_table_names_the_models_and_columns_of_the_default_run() -> None:
    table = marked("leaderboard")[""].strip().splitlines()
    titles = [cell.strip() for cell in table[0].strip("|").split("|")]
    assert titles == ["rank", "model", *(column.title for column in find_board("quick").columns)]
    digits = registry.find("benchmarks", "digits").load()
    assert sorted(cells[1] for cells in rows("\n".join(table))) == sorted(digits.models)


@pytest.mark.slow
def test_the_table_is_what_score_prints_up_to_a_few_samples() -> None:
    """Another processor may decide a few samples at the boundary otherwise."""
    from robustkpca.boards import leaderboard

    (table,) = leaderboard(robustkpca.score(), "quick")
    written = {cells[1]: [float(_numbers(cell)[0]) for cell in cells[2:]] for cells in rows(marked("leaderboard")[""])}
    for row in table.rows:
        values = [100 * cell.value for cell in row.cells if cell.value is not None]
        assert values == pytest.approx(written[row.name], abs=1.0)


def test_an_unknown_option_or_command_would_be_found() -> None:
    with pytest.raises(click.ClickException):
        _run("robustkpca score --no-such-option 3")
    with pytest.raises(AssertionError):
        _run("rm -r results")
    with pytest.raises(BadValue):
        _run("robustkpca leaderboard nowhere")
