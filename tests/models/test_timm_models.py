"""Models of timm: their preprocessing, and what a wrong name or argument says."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch

from robustkpca.errors import BadValue, UnknownName, Unusable
from robustkpca.models import timm_models
from robustkpca.preprocessing import Preprocessing


def test_a_model_is_that_of_timm_with_or_without_the_prefix() -> None:
    theirs = timm.create_model("test_vit")
    for name in ("test_vit", "timm/test_vit"):
        ours = timm_models.create(name)
        assert type(ours) is type(theirs)
        assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_arguments_are_those_of_timm() -> None:
    model = timm_models.create("timm/test_vit", num_classes=7, img_size=32, in_chans=1)
    assert model(torch.rand(2, 1, 32, 32)).shape == (2, 7)


def test_preprocessing_is_what_timm_announces() -> None:
    model = timm_models.create("timm/test_vit")
    half = (0.5, 0.5, 0.5)
    assert model.preprocessing == Preprocessing(168, 160, "bicubic", half, half)


def test_the_size_before_the_crop_is_rounded_down() -> None:
    config = {"input_size": (3, 240, 240), "crop_pct": 0.95, "interpolation": "bilinear", "mean": (0.5,), "std": (0.2,)}
    model = torch.nn.Identity()
    model.pretrained_cfg = config
    assert timm_models.timm_preprocessing(model, {"in_chans": 1}) == Preprocessing(
        252, 240, "bilinear", (0.5,), (0.2,), 1
    )


def test_another_image_size_is_cropped_to_that_size() -> None:
    model = timm_models.create("timm/test_vit", img_size=32)
    assert (model.preprocessing.resize, model.preprocessing.crop) == (33, 32)


def test_non_square_images_are_left_alone() -> None:
    model = timm_models.create("timm/test_vit", img_size=(32, 48))
    assert (model.preprocessing.resize, model.preprocessing.crop) == (None, None)


def test_greyscale_models_average_mean_and_deviation() -> None:
    model = timm_models.create("timm/resnet10t", in_chans=1)
    assert model.preprocessing.channels == 1
    assert model.preprocessing.mean == pytest.approx(((0.485 + 0.456 + 0.406) / 3,))


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no model named 'timm/resnet19'. Did you mean .*'timm/resnet18'"):
        timm_models.create("timm/resnet19")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("resnet18", {"colour": 1}, r"timm/resnet18: .*unexpected keyword argument 'colour'"),
        ("resnet18.nope", {}, "timm/resnet18.nope: Invalid pretrained tag"),
        ("resnet18", {"in_chans": 4}, "in_chans is 4"),
        ("resnet18", {"pretrained": "yes"}, "pretrained is 'yes'; expected true or false"),
    ],
)
def test_a_wrong_argument_is_named_in_one_line(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message) as error:
        timm_models.create(name, **arguments)
    assert "\n" not in str(error.value)


def test_nothing_is_downloaded_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    original = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **k: asked.append(k["pretrained"]) or original(name, **k))
    timm_models.create("test_vit")
    assert asked == [False]


def test_weights_that_cannot_be_downloaded_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    original = timm.create_model

    def offline(name: str, *, pretrained: bool, **arguments: Any) -> Any:
        if pretrained:
            raise FileNotFoundError("cannot find the requested files\nin the local cache")
        return original(name, **arguments)

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(Unusable, match=r"timm/test_vit: the pretrained weights cannot be had \(cannot find") as error:
        timm_models.create("test_vit", pretrained=True)
    assert "\n" not in str(error.value)


def test_a_checkpoint_does_not_go_past_our_checks() -> None:
    with pytest.raises(BadValue, match="give the file with --checkpoint"):
        timm_models.create("resnet18", checkpoint_path="evil.pth")
