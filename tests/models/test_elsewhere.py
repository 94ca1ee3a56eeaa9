"""Models of other packages: torchvision, RobustBench through its stand-ins, and Hugging Face's processors."""

from __future__ import annotations

import base64
import hashlib
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from robustkpca.errors import BadValue, UnknownName, Unusable
from robustkpca.models import create_model, list_models, robustbench_models
from robustkpca.models.huggingface_models import processor_preprocessing
from robustkpca.preprocessing import Preprocessing


def test_torchvision_announces_its_own_preprocessing() -> None:
    model = create_model("torchvision/squeezenet1_1(num_classes=5)")
    assert model.preprocessing == Preprocessing(256, 224, "bilinear", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert model.eval()(torch.rand(1, 3, 64, 64)).shape == (1, 5)
    assert model.canonical_name == "torchvision/squeezenet1_1(num_classes=5)"
    assert model.code_origin.startswith("torchvision==")
    assert "torchvision/vit_b_16" in list_models("torchvision/vit")
    assert not [name for name in list_models() if name.startswith("torchvision/")]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("torchvision/squeezenet1_2", UnknownName, "Did you mean 'torchvision/squeezenet1_"),
        ("torchvision/squeezenet1_1(weights=V9)", UnknownName, "no weights of torchvision/squeezenet1_1 named 'V9'"),
        ("torchvision/squeezenet1_1(depth=3)", BadValue, "torchvision/squeezenet1_1: .*depth"),
        ("torchvision/fcn_resnet50", UnknownName, "no model named"),
        ("robustbench/cifar10/Linf", BadValue, "expected robustbench/DATASET/THREAT/NAME"),
    ],
)
def test_what_cannot_be_built_is_named(text: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        create_model(text)


class Recorded:
    """A distribution with files as pip records them."""

    def __init__(self, folder: Path, contents: dict[str, str]) -> None:
        self.files = []
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            path = metadata.PackagePath(name)
            path.hash, path.dist = metadata.FileHash(f"sha256={digest}"), self  # type: ignore[assignment]
            self.files.append(path)
        self.folder = folder

    def locate_file(self, path: Any) -> Path:
        return self.folder / str(path)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small robustbench that wants the two missing modules, with one model."""
    weights = "import torch\nfrom torch import nn\n"
    contents = {
        "robustbench/__init__.py": "from pkg_resources import resource_filename\nfrom autoattack import AutoAttack\n",
        "robustbench/utils.py": weights + "def load_model(model_name, model_dir, dataset, threat_model):\n"
        "    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 10))\n"
        "    net.load_state_dict(torch.load(f'{model_dir}/{dataset}/{threat_model}/{model_name}.pt'))\n"
        "    return net\n",
        "robustbench/model_zoo/__init__.py": "",
        "robustbench/model_zoo/models.py": "model_dicts = {'cifar10': {'Linf': {'Small2020': {'model': None}}}}\n",
    }
    recorded = Recorded(tmp_path / "site", contents)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(metadata, "distribution", lambda name: recorded)
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"robustbench": ["torchattacks", "robustbench"]})
    monkeypatch.setattr("robustkpca.models.factory.version", lambda name: "1.1.1")
    before = dict(sys.modules)
    for name in [name for name in sys.modules if name.partition(".")[0] == "robustbench"]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    for name in set(sys.modules) - set(before):
        if name.partition(".")[0] in ("robustbench", "autoattack", "pkg_resources"):
            del sys.modules[name]


def test_robustbench_loads_from_a_folder_through_stand_ins(package: Path) -> None:
    folder = package / "weights" / "cifar10" / "Linf"
    folder.mkdir(parents=True)
    expected = {"1.weight": torch.full((10, 12), 0.5), "1.bias": torch.zeros(10)}
    torch.save(expected, folder / "Small2020.pt")
    missing = {name for name in ("autoattack", "pkg_resources") if name not in sys.modules}
    model = create_model("robustbench/cifar10/Linf/Small2020", model_dir=str(package / "weights"))
    assert torch.equal(model.state_dict()["1.weight"], expected["1.weight"])
    assert (model.canonical_name, model.code_origin) == ("robustbench/cifar10/Linf/Small2020", "robustbench==1.1.1")
    assert model.preprocessing == Preprocessing(interpolation="bilinear")
    assert not missing & {name for name in ("autoattack",) if name in sys.modules}
    assert list_models("robustbench/cifar10") == ["robustbench/cifar10/Linf/Small2020"]


def test_the_folder_may_stand_in_the_environment(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBUSTKPCA_MODEL_DIR", str(package / "elsewhere"))
    with pytest.raises(Unusable, match=r"its weights are looked for in .*elsewhere/cifar10/Linf"):
        create_model("robustbench/cifar10/Linf/Small2020")


def test_unknown_models_of_robustbench_are_answered_with_the_nearest(package: Path) -> None:
    with pytest.raises(UnknownName, match=r"no model of robustbench/cifar10/Linf named 'Small2021'\. Did you mean"):
        create_model("robustbench/cifar10/Linf/Small2021")
    with pytest.raises(UnknownName, match="no data set of robustbench named 'cifar11'"):
        create_model("robustbench/cifar11/Linf/Small2020")
    with pytest.raises(UnknownName, match="argument of model robustbench/cifar10/Linf/Small2020 named 'folder'"):
        create_model("robustbench/cifar10/Linf/Small2020(folder=here)")


@pytest.mark.parametrize("how", ["overwritten", "deleted"])
def test_a_folder_damaged_by_torchattacks_is_refused_with_the_mend(package: Path, how: str) -> None:
    file = package / "site" / "robustbench" / "utils.py"
    if how == "overwritten":
        file.write_text("# an older version\n")
    else:
        file.unlink()
    with pytest.raises(
        Unusable, match=r"torchattacks brings the same folder\. Mend it: pip uninstall -y torchattacks"
    ) as error:
        create_model("robustbench/cifar10/Linf/Small2020")
    assert "robustbench/utils.py" in str(error.value)
    assert "\n" not in str(error.value)


def test_without_robustbench_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(robustbench_models.metadata, "distribution", missing)
    with pytest.raises(Unusable, match=r"pip install 'robustkpca\[robustbench\]'"):
        create_model("robustbench/cifar10/Linf/Small2020")


def test_processors_become_preprocessing() -> None:
    vit = {
        "do_resize": True,
        "size": {"height": 224, "width": 224},
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    assert processor_preprocessing(vit, "vit") == Preprocessing(224, 224, "bilinear", (0.5,) * 3, (0.5,) * 3)
    cropped = vit | {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}}
    assert processor_preprocessing(cropped | {"do_normalize": False}, "x") == Preprocessing(256, 224, "bilinear")
    with pytest.raises(BadValue, match="scales images by 1; expected 1/255"):
        processor_preprocessing(vit | {"rescale_factor": 1}, "x")
    with pytest.raises(BadValue, match="expected squares"):
        processor_preprocessing(vit | {"size": {"height": 224, "width": 200}}, "x")


def test_a_classifier_of_transformers_is_loaded_from_a_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, image_size=32, num_labels=4
    )
    network = transformers.ViTForImageClassification(config).eval()
    network.save_pretrained(tmp_path / "net")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "net")
    model = create_model(f"huggingface/{tmp_path / 'net'}").eval()
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(model(images), network(pixel_values=images).logits)
    assert model.preprocessing.crop == 32


def test_without_transformers_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(Unusable, match="pip install transformers"):
        create_model("huggingface/google/vit-base-patch16-224")
