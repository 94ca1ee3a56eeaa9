"""Models from a user's own file: how it is loaded, and what every mistake in it says."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from robustkpca.errors import BadValue, UnknownName, Unusable
from robustkpca.models import file_models
from robustkpca.models.loading import load_model
from robustkpca.preprocessing import Preprocessing

NETWORK = """
from torch import nn

class Network(nn.Module):
    def __init__(self, classes=10, scale=1.0):
        super().__init__()
        self.layer, self.scale = nn.Linear(4, classes), scale

    def forward(self, images):
        return self.scale * self.layer(images.flatten(1))

def build(classes=10):
    return Network(classes)

ready = Network(3)
number = 3
def text(): return "not a module"
def broken(): return 1 / 0
"""


def written(folder: Path, text: str = NETWORK, name: str = "network.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "arguments", "classes"),
    [("build", {"classes": 5}, 5), ("Network", {"classes": 6, "scale": 2.0}, 6), ("build", {}, 10), ("ready", {}, 3)],
)
def test_a_function_a_class_or_a_module_makes_the_network(
    tmp_path: Path, name: str, arguments: dict[str, Any], classes: int
) -> None:
    model = file_models.create(f"{written(tmp_path)}:{name}", **arguments)
    assert model(torch.rand(2, 1, 2, 2)).shape == (2, classes)
    assert model.preprocessing == Preprocessing()


def test_a_relative_path_starts_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "nets")
    monkeypatch.chdir(tmp_path)
    assert isinstance(file_models.create("nets/network.py:build"), torch.nn.Module)


@pytest.mark.parametrize("package", ["layers.py", "attacks/__init__.py", "attacks/layers.py"])
def test_files_beside_it_can_be_imported_also_from_a_folder_named_attacks(tmp_path: Path, package: str) -> None:
    written(tmp_path, "WIDTH = 7\n", package)
    module = package.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    path = written(tmp_path, f"from {module} import WIDTH\n{NETWORK}\ndef own(): return Network(WIDTH)\n")
    model = file_models.create(f"{path}:own")
    assert model.layer.out_features == 7


def test_imports_inside_the_function_are_found(tmp_path: Path) -> None:
    written(tmp_path, "WIDTH = 7\n", "late.py")
    body = "def own():\n    from late import WIDTH\n    return Network(WIDTH)\n"
    model = file_models.create(f"{written(tmp_path, NETWORK + body)}:own")
    assert model.layer.out_features == 7


def test_two_folders_may_each_have_their_own_file_of_one_name(tmp_path: Path) -> None:
    widths = []
    for folder, width in (("one", 7), ("two", 8)):
        written(tmp_path / folder, f"WIDTH = {width}\n", "layers.py")
        path = written(tmp_path / folder, f"from layers import WIDTH\n{NETWORK}\ndef own(): return Network(WIDTH)\n")
        widths.append(file_models.create(f"{path}:own").layer.out_features)
    assert widths == [7, 8]


def test_the_search_path_and_the_loaded_modules_are_left_as_they_were(tmp_path: Path) -> None:
    written(tmp_path, "WIDTH = 7\n", "sibling_of_the_network.py")
    path = written(tmp_path, f"import sibling_of_the_network\n{NETWORK}")
    search = list(sys.path)
    file_models.create(f"{path}:build")
    assert sys.path == search
    assert "sibling_of_the_network" not in sys.modules
    assert "network" not in sys.modules


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    path = written(tmp_path)
    file_models.create(f"{path}:build")
    written(tmp_path, NETWORK.replace("classes=10", "classes=11"))
    assert file_models.create(f"{path}:build").layer.out_features == 11


def test_two_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    first = file_models.create(f"{written(tmp_path / 'one')}:build")
    second = file_models.create(f"{written(tmp_path / 'two')}:build")
    assert type(first) is not type(second)
    assert type(first).__module__ in sys.modules


@pytest.mark.parametrize(
    "value",
    ["'preprocessing(crop=2,resize=3)'", "__import__('robustkpca.preprocessing', fromlist=['_']).Preprocessing(3, 2)"],
)
def test_the_preprocessing_of_the_module_is_kept(tmp_path: Path, value: str) -> None:
    path = written(tmp_path, f"{NETWORK}\nNetwork.preprocessing = {value}\n")
    assert file_models.create(f"{path}:build").preprocessing == Preprocessing(3, 2)


def test_another_thing_named_preprocessing_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, f"{NETWORK}\nNetwork.preprocessing = 3\n")
    with pytest.raises(BadValue, match="its attribute preprocessing is a int"):
        file_models.create(f"{path}:build")


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "message"),
    [
        ("biuld", {}, UnknownName, r"no function in .*network.py named 'biuld'. Did you mean 'build'"),
        ("text", {}, BadValue, "the result is a str; expected a torch.nn.Module"),
        ("number", {}, BadValue, "is a int; expected a function, a class or a torch.nn.Module"),
        ("ready", {"classes": 2}, BadValue, "is a module already and takes no arguments; got classes"),
        ("build", {"clases": 2}, UnknownName, r"network.py:build named 'clases'. Did you mean 'classes'"),
        ("broken", {}, Unusable, "network.py:broken raised ZeroDivisionError in line 18: division by zero"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    tmp_path: Path, name: str, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as error:
        file_models.create(f"{written(tmp_path)}:{name}", **arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\nimport not_installed_anywhere\n", "raised ModuleNotFoundError in line 2: No module named"),
        ("x = 1\nraise ValueError('first\\nsecond')\n", "raised ValueError in line 2: first second"),
        ("def build(:\n", "raised SyntaxError in line 1"),
        ("import sys\nsys.exit(3)\n", "raised SystemExit in line 2: 3"),
    ],
)
def test_an_error_while_the_file_runs_is_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Unusable, match=message) as error:
        file_models.create(f"{written(tmp_path, text)}:build")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"nowhere.py: cannot be read \(No such file or directory\)"):
        file_models.create(f"{tmp_path}/nowhere.py:build")


@pytest.mark.parametrize("reference", ["network.py", "network.py:", ":build", "network.py:a.b", "network:build"])
def test_a_reference_of_another_form_is_refused(reference: str) -> None:
    with pytest.raises(BadValue, match=r"expected path/to/file\.py:function"):
        file_models.create(reference)


def test_the_digest_is_that_of_the_bytes_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert file_models.source_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()


STRANGE = """
import torch
from torch import nn

class Labelled(nn.Module):
    preprocessing = "channels=1"
    def __init__(self):
        super().__init__()
        self.label = nn.Linear(64, 10)
    def forward(self, images):
        return self.label(images.flatten(1))

class ReadOnly(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)
    @property
    def preprocessing(self):
        return "channels=1"
    def forward(self, images):
        return self.linear(images.flatten(1))

class Buffered(ReadOnly):
    def __init__(self):
        super().__init__()
        self.register_buffer("repeated", torch.ones(1).expand(4))
        self.register_buffer("cache", torch.zeros(1), persistent=False)
    def forward(self, images):
        self.cache = images.mean((1, 2, 3))
        return super().forward(images)

class Few(ReadOnly):
    def __init__(self, outputs=0, kind="float32"):
        super().__init__()
        self.outputs, self.kind = outputs, getattr(torch, kind)
    def forward(self, images):
        return super().forward(images)[:, : self.outputs].to(self.kind)

def inference():
    with torch.inference_mode():
        return ReadOnly()

def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))

def meta():
    with torch.device("meta"):
        return ReadOnly()
"""


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    path = tmp_path / "strange.py"
    path.write_text(STRANGE)
    return path


@pytest.mark.parametrize("name", ["Labelled", "ReadOnly", "Buffered", "inference"])
def test_a_network_with_parts_of_our_names_or_odd_buffers_is_scored(strange: Path, name: str) -> None:
    model = load_model(f"{strange}:{name}")
    assert (model.spec.label, model.spec.preprocessing.channels) == (f"strange.py:{name}", 1)
    before = {key: value.clone() for key, value in model.network.named_buffers()}
    with model.evaluating():
        assert model.logits(torch.rand(3, 1, 8, 8)).shape == (3, 10)
    assert {key: value.tolist() for key, value in model.network.named_buffers()} == {
        key: value.tolist() for key, value in before.items()
    }


@pytest.mark.parametrize(
    ("name", "said"), [("lazy", "a lazy layer before its first pass"), ("meta", "the meta device")]
)
def test_weights_without_values_are_named(strange: Path, name: str, said: str) -> None:
    with pytest.raises(Unusable, match=f"has no values \\({said}\\)"):
        load_model(f"{strange}:{name}")


@pytest.mark.parametrize("arguments", ["", "outputs=10,kind=complex64"])
def test_outputs_that_are_no_logits_are_named(strange: Path, arguments: str) -> None:
    model = load_model(f"{strange}:Few({arguments})" if arguments else f"{strange}:Few")
    with model.evaluating(), pytest.raises(BadValue, match="expected real logits, at least one"):
        model.logits(torch.rand(3, 1, 8, 8))


def test_a_number_of_outputs_that_changes_is_named(strange: Path) -> None:
    model = load_model(f"{strange}:Few(outputs=10)")
    with model.evaluating():
        model.logits(torch.rand(3, 1, 8, 8))
        model.network.outputs = 5
        with pytest.raises(BadValue, match="expected real logits, 10, as before"):
            model.logits(torch.rand(3, 1, 8, 8))


def test_a_path_that_no_file_system_allows_is_one_line() -> None:
    with pytest.raises(Unusable, match="cannot be read"):
        load_model("a\0b.py:net")


def test_a_misspelt_argument_is_answered_with_the_nearest(strange: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'outputs'"):
        load_model(f"{strange}:Few(ouputs=3)")
