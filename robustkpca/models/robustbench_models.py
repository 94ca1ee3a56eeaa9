"""Models of RobustBench, as ``robustbench/<dataset>/<threat>/<name>``, with the extra ``robustbench``.

The package of PyPI cannot be imported as it is: it wants ``pkg_resources``, which setuptools no longer has, and ``autoattack``,
which PyPI calls ``pyautoattack``. Both get a stand-in while it is imported. And torchattacks brings an old copy of the same
folder, so that files of two versions may lie mixed; such a folder is refused.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from torch import nn

from robustkpca.errors import BadValue, Unusable, unknown
from robustkpca.preprocessing import Preprocessing

VERSION = "1.1.1"
MODEL_DIR = "ROBUSTKPCA_MODEL_DIR"
"""Environment variable with the folder of weights, where ``model_dir`` is not given."""

_MEND = f"pip uninstall -y torchattacks robustbench && pip install --no-deps robustbench=={VERSION}"
_RESIZED = {"imagenet": (256, 224)}  # robustbench's own transform, "Res256Crop224"


def create(path: str, *, model_dir: str = "", num_classes: int | None = None) -> nn.Module:
    """Build a model of RobustBench with its weights.

    Args:
        path: ``dataset/threat/name``, such as ``cifar10/Linf/Carmon2019Unlabeled``.
        model_dir: Folder as RobustBench lays it out, ``<model_dir>/<dataset>/<threat>/<name>.pt``; empty for the variable
            `MODEL_DIR`, and ``models`` where that is not set. What lies there is not downloaded.
        num_classes: Refused where it differs from the model's own.

    Returns:
        The model. It normalises its input itself; ``preprocessing`` says how large the images are.

    Raises:
        UnknownName: If RobustBench has no such data set, threat or model.
        BadValue: If the path has another form.
        Unusable: If the package is missing or damaged, or the weights cannot be had.

    Source:
        Croce et al. 2021, arXiv:2010.09670; RobustBench/robustbench 1.1.1.
    """
    parts = path.split("/")
    if len(parts) != 3:
        raise BadValue(
            f"model robustbench/{path}: expected robustbench/DATASET/THREAT/NAME, such as"
            " robustbench/cifar10/Linf/Carmon2019Unlabeled"
        )
    zoo = model_zoo()
    dataset, threat, name = parts
    for kind, known, one in (
        ("data set of robustbench", zoo, dataset),
        (f"threat of robustbench/{dataset}", zoo.get(dataset, {}), threat),
        (f"model of robustbench/{dataset}/{threat}", zoo.get(dataset, {}).get(threat, {}), name),
    ):
        if one not in known:
            raise unknown(kind, one, known)
    folder = Path(model_dir or os.environ.get(MODEL_DIR) or "models")
    with _stand_ins():
        load: Any = importlib.import_module("robustbench.utils").load_model
        try:
            model: nn.Module = load(model_name=name, model_dir=str(folder), dataset=dataset, threat_model=threat)
        except Exception as error:  # the download, torch and every architecture raise their own
            raise Unusable(
                f"robustbench/{path}: cannot be had ({' '.join(str(error).split())[:200]}); its weights are looked for in"
                f" {folder / dataset / threat}, see model_dir"
            ) from error
    resize, crop = _RESIZED.get(dataset, (None, None))
    setattr(model, "preprocessing", Preprocessing(resize, crop, "bilinear"))  # noqa: B010
    if num_classes is not None and num_classes != zoo_classes(dataset):
        raise BadValue(f"robustbench/{path} has {zoo_classes(dataset)} logits, not {num_classes}")
    return model


def model_zoo() -> dict[str, dict[str, dict[str, Any]]]:
    """Return RobustBench's table of models: data set, threat, name.

    Raises:
        Unusable: If the package is missing or damaged.
    """
    require_whole_package()
    with _stand_ins():
        try:
            table: Any = importlib.import_module("robustbench.model_zoo.models").model_dicts
        except Exception as error:  # whatever its many imports raise
            raise Unusable(
                f"robustbench cannot be imported ({' '.join(f'{type(error).__name__}: {error}'.split())[:200]});"
                f" install it anew: pip install 'robustkpca[robustbench]'"
            ) from error
    return {
        _text(dataset): {_text(threat): dict(models) for threat, models in threats.items()}
        for dataset, threats in table.items()
    }


def zoo_classes(dataset: str) -> int:
    """Return the number of classes of one of RobustBench's data sets."""
    return {"cifar10": 10, "cifar100": 100}.get(dataset, 1000)


def require_whole_package() -> None:
    """Make sure that every file of robustbench is the one that its package brought.

    Raises:
        Unusable: If the package is missing, or files differ from its record or have another owner.
    """
    try:
        distribution = metadata.distribution("robustbench")
    except metadata.PackageNotFoundError:
        raise Unusable("robustbench/ models need the package: pip install 'robustkpca[robustbench]'") from None
    damaged = [str(file) for file in distribution.files or () if not _as_recorded(file)]
    if damaged:
        others = [owner for owner in metadata.packages_distributions().get("robustbench", ()) if owner != "robustbench"]
        by = f"; {', '.join(sorted(set(others)))} brings the same folder" if others else ""
        raise Unusable(
            f"robustbench is damaged: {len(damaged)} of its files are missing or not its own, such as {damaged[0]}{by}."
            f" Mend it: {_MEND}"
        )


def _as_recorded(file: metadata.PackagePath) -> bool:
    """Say whether a file has the digest that its package recorded; files without one are not looked at."""
    if file.hash is None or file.suffix != ".py":
        return True
    try:
        content = Path(str(file.locate())).read_bytes()
    except OSError:
        return False
    digest = hashlib.new(file.hash.mode, content).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Put stand-ins for two missing modules in place, only where they are missing, and take them away again."""
    added = {}
    for name, make in (("pkg_resources", _resources), ("autoattack", _autoattack)):
        try:
            importlib.import_module(name)
        except ImportError:
            for module, stand_in in make().items():
                added[module] = stand_in
                sys.modules[module] = stand_in
    try:
        yield
    finally:
        for module in added:
            sys.modules.pop(module, None)


def _resources() -> dict[str, types.ModuleType]:
    module: Any = types.ModuleType("pkg_resources")

    def resource_filename(package: str, resource: str) -> str:
        found = importlib.import_module(package).__file__
        return str(Path(found or "").parent / resource)

    module.resource_filename = resource_filename
    return {"pkg_resources": module}


def _autoattack() -> dict[str, types.ModuleType]:
    package = importlib.import_module("pyautoattack")
    modules: dict[str, types.ModuleType] = {"autoattack": package}
    for name in ("state", "autopgd_base", "fab_pt", "square", "other_utils", "checks"):
        try:
            modules[f"autoattack.{name}"] = importlib.import_module(f"pyautoattack.{name}")
        except ImportError:
            continue
    return modules


def _text(key: Any) -> str:
    """Return a key of the table as text; RobustBench keeps enumerations."""
    return str(getattr(key, "value", key))
