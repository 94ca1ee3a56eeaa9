"""Image classifiers of transformers, saved small in a folder. Skipped where transformers is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import robustkpca as rk
from robustkpca.errors import BadValue, Unusable
from robustkpca.models.huggingface_models import processor_preprocessing
from robustkpca.models.loading import load_model

PROCESSOR: dict[str, Any] = {
    "do_resize": True,
    "size": {"shortest_edge": 20},
    "do_center_crop": True,
    "crop_size": {"height": 16, "width": 16},
    "resample": 2,
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.2, 0.25, 0.3],
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vision transformer of random weights and its image processor, as ``save_pretrained`` writes it."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("hub") / "tiny"
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=16,
        patch_size=4,
        num_labels=5,
    )
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).save_pretrained(folder, safe_serialization=True)
    transformers.CLIPImageProcessor(**PROCESSOR).save_pretrained(folder)
    return folder


def test_it_gives_the_logits_that_transformers_gives(saved: Path, tmp_path: Path) -> None:
    import transformers

    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)  # of the crop's size: nothing is resized
    model = load_model(f"huggingface/{saved}")
    ours = model.logits(torch.from_numpy(pixels).permute(2, 0, 1).unsqueeze(0) / 255)
    settings = PROCESSOR | {"do_resize": False}
    inputs = transformers.CLIPImageProcessor(**settings)(Image.fromarray(pixels), return_tensors="pt")
    with torch.no_grad():
        theirs = transformers.AutoModelForImageClassification.from_pretrained(saved).eval()(**inputs).logits
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    assert (model.spec.preprocessing.resize, model.spec.preprocessing.crop) == (20, 16)


def test_it_is_attacked_like_any_other(saved: Path) -> None:
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    model = load_model(f"huggingface/{saved}")
    labels = model.logits(images).argmax(1)
    assert rk.attack(model, images, labels, "pgd(steps=3)@linf:0.5").details == ("", "", "")


def test_pickled_weights_are_never_read(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    folder.mkdir()
    for name in ("config.json", "preprocessor_config.json"):
        (folder / name).write_bytes((saved / name).read_bytes())
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(Unusable, match=r"cannot be had .*safetensors"):
        load_model(f"huggingface/{folder}")


def test_a_processor_that_a_preprocessing_cannot_say_is_refused() -> None:
    with pytest.raises(BadValue, match="scales images by 1; expected 1/255"):
        processor_preprocessing({"rescale_factor": 1}, "odd")
    with pytest.raises(BadValue, match="expected squares"):
        processor_preprocessing({"size": {"height": 8, "width": 9}}, "odd")


def test_the_settings_of_a_processor_are_read_as_it_means_them() -> None:
    exact = processor_preprocessing({"size": {"height": 8, "width": 8}, "resample": 3}, "exact")
    assert (exact.resize, exact.crop, exact.interpolation, exact.mean) == (8, 8, "bicubic", ())
    cropped = processor_preprocessing(PROCESSOR, "cropped")
    assert (cropped.resize, cropped.crop, cropped.interpolation) == (20, 16, "bilinear")
    assert (cropped.mean, cropped.std) == ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
