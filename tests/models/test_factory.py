"""From a name to a network: where it is found, how it is called, and that its initial weights are always the same."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from robustkpca.calls import Call
from robustkpca.errors import BadValue, UnknownName, Unusable
from robustkpca.models import CATALOGUE, create_model, factory, list_models
from robustkpca.preprocessing import Preprocessing
from robustkpca.registry import Entry

CANONICAL = (
    "rpc_symvit_digits(depth=4,drop_path=0.0,embed_dim=48,img_size=8,in_chans=1,init=published,iterations=6,lambda_=4.0,"
    "layers=0,mlp_ratio=4.0,mu_dim=C,num_classes=10,num_heads=3,others=symmetric,patch_size=2,qkv_bias=true,"
    "threshold=lambda*mu,variant=released)"
)


class Plugin(nn.Module):
    """A stand-in for the model of a plug-in package."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.layer = nn.Linear(3, classes)


def no_module() -> int:
    return 3


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announce two models of a package called ``elsewhere``."""
    table = {f"elsewhere/{thing.__name__}": thing for thing in (Plugin, no_module)}

    class Announced:
        def __init__(self, thing: Any) -> None:
            self.thing, self.origin = thing, "elsewhere==1.2"

        def function(self) -> Any:
            return self.thing

    monkeypatch.setattr(factory, "find", lambda group, name: Announced(table[name]))


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_every_entry_of_the_catalogue_leads_to_a_function_of_its_name(name: str) -> None:
    entry: Entry = CATALOGUE[name]
    assert entry.load().__name__ == name
    assert entry.summary
    assert entry.source
    assert entry.tags


@pytest.mark.parametrize(
    "spelling",
    [
        "rpc_symvit_digits(iterations=6)",
        "rpc_symvit_digits( layers = [0] , iterations=6.0 )",
        "rpc_symvit_digits(lambda_=4,threshold=lambda*mu,iterations=6)",
    ],
)
def test_spellings_of_one_model_have_one_canonical_name(spelling: str) -> None:
    assert create_model(spelling).canonical_name == CANONICAL


def test_the_canonical_name_makes_the_same_model() -> None:
    assert create_model(CANONICAL).canonical_name == CANONICAL
    assert str(Call.parse(CANONICAL)) == CANONICAL


def test_the_label_is_what_was_written() -> None:
    model = create_model("rpc_symvit_digits(iterations=2)", layers="all")
    assert model.label == "rpc_symvit_digits(iterations=2,layers=all)"


def test_arguments_in_python_win_over_those_in_the_text() -> None:
    model = create_model("rpc_symvit_digits(iterations=2,layers=0)", iterations=3, layers=[0, 1])
    assert model.label == "rpc_symvit_digits(iterations=3,layers=[0,1])"
    assert [getattr(block.attn, "pursuit", None) is not None for block in model.blocks] == [True, True, False, False]


def test_every_value_of_the_grammar_reaches_the_model() -> None:
    model = create_model(
        "rpc_symvit_digits(threshold=lambda/mu,mu_dim=d,variant=rebuttal-layer,layers=all,img_size=[8,12])"
    )
    assert vars(model.blocks[3].attn.pursuit) == {
        "iterations": 4,
        "lambda_": 4.0,
        "threshold": "lambda/mu",
        "mu_dim": "d",
        "variant": "rebuttal-layer",
    }
    assert model.img_size == (8, 12)


def test_initial_weights_are_the_same_every_time_and_the_generators_untouched() -> None:
    torch.manual_seed(5)
    random.seed(5)
    numpy.random.seed(5)
    expected = torch.rand(1), random.random(), numpy.random.rand()
    torch.manual_seed(5)
    random.seed(5)
    numpy.random.seed(5)
    first = create_model("symvit_digits")
    assert (torch.rand(1), random.random(), numpy.random.rand()) == expected
    second = create_model("symvit_digits")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_model_of_timm_says_where_it_is_from() -> None:
    import timm

    model = create_model("timm/test_vit(num_classes=4)", pretrained=False)
    assert (model.canonical_name, model.label) == (
        "timm/test_vit(num_classes=4)",
        "timm/test_vit(num_classes=4,pretrained=false)",
    )
    assert model.code_origin == f"timm=={timm.__version__}"
    assert torch.equal(model.head.weight, create_model("timm/test_vit(num_classes=4)").head.weight)


def test_a_model_from_a_file_carries_the_digest_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "my nets" / "net.py"
    path.parent.mkdir()
    path.write_text("from torch import nn\ndef build(width=2): return nn.Linear(3, width)\n")
    model = create_model(f"{path}:build(width=5)")
    assert model.out_features == 5
    assert (model.canonical_name, model.label) == ("net.py:build(width=5)", "net.py:build(width=5)")
    assert model.code_origin == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert model.preprocessing == Preprocessing()
    assert torch.equal(model.weight, create_model(f"{path}:build", width=5).weight)


@pytest.mark.usefixtures("plugin")
def test_a_model_of_a_plugin_is_described_like_our_own() -> None:
    model = create_model("elsewhere/Plugin(classes=3)")
    assert model.layer.out_features == 3
    assert (model.canonical_name, model.code_origin) == ("elsewhere/Plugin(classes=3)", "elsewhere==1.2")
    assert model.preprocessing == Preprocessing()


@pytest.mark.usefixtures("plugin")
def test_a_plugin_that_makes_no_module_is_reported() -> None:
    with pytest.raises(Unusable, match=r"model elsewhere/no_module from elsewhere==1.2: the result is a int"):
        create_model("elsewhere/no_module")


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "message"),
    [
        ("symvit_digitz", {}, UnknownName, "no model named 'symvit_digitz'. Did you mean 'symvit_digits'"),
        ("symvit_digits(iterations=2)", {}, UnknownName, "no argument of model symvit_digits named 'iterations'"),
        ("rpc_symvit_digits(iteratons=2)", {}, UnknownName, "Did you mean 'iterations'"),
        ("symvit_digits(depth=two)", {}, BadValue, "depth is two; expected a whole number"),
        ("symvit_digits(img_size=big)", {}, BadValue, "img_size is 'big'; expected a number of pixels"),
        ("symvit_digits(depth=2", {}, BadValue, "the bracket is not closed"),
        ("symvit_digits", {"depth": nn.Identity()}, BadValue, r"depth is Identity\(\); expected a number"),
        ("timm/test_vti", {}, UnknownName, "Did you mean 'timm/test_vit'"),
        ("net.py:build", {}, Unusable, "net.py: cannot be read"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    name: str, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as error:
        create_model(name, **arguments)
    assert "\n" not in str(error.value)


def test_lists_show_the_registry_and_timm_only_when_asked() -> None:
    everything = list_models()
    assert set(CATALOGUE) <= set(everything)
    assert not [name for name in everything if name.startswith("timm/")]
    assert list_models("*symvit_digits") == ["rpc_symvit_digits", "symvit_digits"]
    assert {"softmax_vit_digits", "vit_digits"} <= set(list_models("vit_dig"))
    assert list_models("symv*tiny") == ["symvit_tiny"]
    assert "timm/test_vit" in list_models("timm/test_v")
    assert list_models("timm/*vit_tiny_patch16_384") == ["timm/vit_tiny_patch16_384"]


def test_listing_imports_no_torch() -> None:
    code = "import sys, robustkpca.models as m; m.list_models('vit'); print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_the_defaults_of_a_function_written_out_name_the_same_model(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text("from torch import nn\ndef build(width=2, kind=nn.Linear): return kind(3, width)\n")
    assert create_model(f"{path}:build").canonical_name == create_model(f"{path}:build(width=2)").canonical_name
    assert create_model(f"{path}:build").label == "net.py:build"


def test_the_usual_class_count_of_timm_names_the_same_model() -> None:
    names = [create_model(f"timm/resnet10t{arguments}").canonical_name for arguments in ("", "(num_classes=1000)")]
    assert names[0] == names[1]


def test_a_file_without_a_function_is_told_how_to_name_one() -> None:
    with pytest.raises(BadValue, match=r"write 'net\.py:FUNCTION'"):
        create_model("net.py")
