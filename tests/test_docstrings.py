"""Docstrings say what a reader needs, in the order that CONTRIBUTING asks for.

Everything public has a summary. An Args section names every parameter and nothing else; without one a function has few
parameters, which its summary speaks of. Attacks and the Python interface have the full form.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import robustkpca
from robustkpca import registry
from robustkpca.threats import SEQUENCE

SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Source")
"""In this order; the first two do not occur together with another order than this."""
FEW = 3
"""Up to so many parameters a summary can speak of."""
ELSEWHERE = re.compile(r"(Args|Arguments|Options)[\w ]* as `|[Ss]ee `")
"""How a docstring sends its reader to another one."""
CALLED_BY_CLICK = {"commands.py"}
"""Whose parameters are documented by their options."""


def _files() -> Iterator[tuple[str, Path]]:
    """Yield every module of the core and of the three wings as in a checkout, where the wings lie beside the core."""
    core = Path(robustkpca.__file__).parent
    inside = (core / "attacks").is_dir()
    for wing in ("attacks", "corruptions", "leaderboards"):
        for path in sorted(((core if inside else core.parent) / wing).glob("*.py")):
            yield f"{wing}/{path.name}", path
    for path in sorted(core.rglob("*.py")):
        place = path.relative_to(core).as_posix()
        if not inside or not place.startswith(("attacks/", "corruptions/", "leaderboards/")):
            yield f"robustkpca/{place}", path


@dataclass(frozen=True)
class Described:
    """Something public, with its docstring."""

    where: str
    node: ast.Module | ast.ClassDef | ast.FunctionDef

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.node) or ""

    def __str__(self) -> str:
        return self.where


def _public(place: str, path: Path) -> Iterator[Described]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield Described(place, tree)
    waiting: list[tuple[str, ast.AST]] = [(place, tree)]
    while waiting:
        owner, holder = waiting.pop()
        for node in ast.iter_child_nodes(holder):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                yield Described(f"{owner}:{node.name}", node)
                if isinstance(node, ast.ClassDef):
                    waiting.append((f"{owner}:{node.name}", node))


EVERYTHING = [one for place, path in _files() for one in _public(place, path)]
FUNCTIONS = [one for one in EVERYTHING if isinstance(one.node, ast.FunctionDef)]


def _parameters(node: ast.FunctionDef) -> list[str]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [argument.arg for argument in named if argument is not None and argument.arg not in ("self", "cls")]


def _taken(node: ast.ClassDef) -> set[str]:
    """Return what an instance is made of: annotated fields, or the parameters of ``__init__``, with those of bases."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return set(_parameters(part))
    fields = [
        part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    ]
    return {name for name in fields if not name.isupper()}


def _sections(docstring: str) -> list[str]:
    return re.findall(rf"^({'|'.join(SECTIONS)}):$", docstring, re.M)


def _args(docstring: str) -> set[str] | None:
    """Return the names in the Args section, ``None`` without one."""
    section = re.search(r"^Args:\n((?:(?: {4}.*)?\n?)+)", docstring, re.M)
    return set(re.findall(r"^ {4}\*{0,2}(\w+):", section[1], re.M)) if section else None


def test_there_is_something_to_check() -> None:
    places = {one.where for one in EVERYTHING}
    assert {"attacks/pgd.py:pgd", "robustkpca/judge.py:judge_attack", "leaderboards/linf.py"} <= places
    assert len(FUNCTIONS) > 200


def test_a_section_is_read_to_its_end_and_no_further() -> None:
    docstring = (
        "Do it.\n\nArgs:\n    one: First:\n        still the first.\n    **two: Second.\n\nReturns:\n    three: No."
    )
    assert _args(docstring) == {"one", "two"}
    assert _args("Do it.\n\nReturns:\n    one: No.") is None
    assert _sections(docstring) == ["Args", "Returns"]


def test_everything_public_has_a_summary_of_one_line() -> None:
    wrong = []
    for one in EVERYTHING:
        summary, _, rest = one.docstring.partition("\n")
        if not summary.rstrip().endswith((".", ":")) or (rest and not rest.startswith("\n")):
            wrong.append(one.where)
    assert wrong == []


def test_sections_stand_in_their_order_and_once() -> None:
    wrong = []
    for one in EVERYTHING:
        found = _sections(one.docstring)
        if found != sorted(set(found), key=SECTIONS.index):
            wrong.append(f"{one}: {found}")
    assert wrong == []


def test_args_name_every_parameter_of_a_function_and_nothing_else() -> None:
    wrong = []
    for one in FUNCTIONS:
        assert isinstance(one.node, ast.FunctionDef)
        named, parameters = _args(one.docstring), set(_parameters(one.node))
        if named is not None and named != parameters:
            wrong.append(f"{one}: {sorted(named ^ parameters)}")
    assert wrong == []


def test_args_of_a_class_name_every_field() -> None:
    wrong = []
    for one in EVERYTHING:
        if isinstance(one.node, ast.ClassDef):
            named, fields = _args(one.docstring), _taken(one.node)
            inherits = any(ast.unparse(base).startswith(("RPC", "Recorded", "Draws")) for base in one.node.bases)
            if named is not None and not (fields <= named if inherits else fields - {"model_config"} == named):
                wrong.append(f"{one}: {sorted(named ^ fields)}")
    assert wrong == []


def test_functions_of_many_parameters_explain_them() -> None:
    wrong = []
    for one in FUNCTIONS:
        assert isinstance(one.node, ast.FunctionDef)
        few = len(_parameters(one.node)) <= FEW
        if not few and _args(one.docstring) is None and not ELSEWHERE.search(one.docstring):
            overrides = ":" in one.where.partition(":")[2]  # a method is explained by its class or protocol
            if not overrides and Path(one.where.partition(":")[0]).name not in CALLED_BY_CLICK:
                wrong.append(one.where)
    assert wrong == []


def test_docstrings_speak_of_types_in_the_signature_alone() -> None:
    wrong = [one.where for one in FUNCTIONS if re.search(r"^ {4}\w+ \([\w\[\], |.]+\):", one.docstring, re.M)]
    assert wrong == []


@pytest.mark.parametrize("name", sorted(robustkpca.__all__))
def test_the_python_interface_speaks_of_every_parameter(name: str) -> None:
    places = [one for one in FUNCTIONS if re.fullmatch(rf"robustkpca/(models/)?\w+\.py:{name}", one.where)]
    spoken = [one for one in places if "/commands.py" not in one.where]  # verbs of the same names
    assert len(spoken) == 1
    assert isinstance(spoken[0].node, ast.FunctionDef)
    silent = [p for p in _parameters(spoken[0].node) if not re.search(rf"\b{p}\b", spoken[0].docstring)]
    assert silent == []


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("name", [name for name in sorted(registry.entries("attacks")) if "torchattacks" not in name])
def test_attacks_have_the_full_form(name: str, published: bool) -> None:
    entry = registry.find("attacks", name)
    if published and not entry.published:
        pytest.skip(f"{name} has no published form")
    sections = _sections(inspect.getdoc(entry.load(published=published)) or "")
    yields = set() if SEQUENCE in entry.tags else {"Returns" if entry.engine else "Yields"}
    assert {"Args", "Source"} | yields <= set(sections)
