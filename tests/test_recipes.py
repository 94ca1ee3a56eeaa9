"""Recipes as text and as value."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest

from robustkpca.errors import BadValue, UnknownName
from robustkpca.recipes import PRESETS, Recipe


def test_a_recipe_has_one_text_and_is_read_back() -> None:
    text, recipe = Recipe.parse("digits( seed = 1,epochs=7)")
    assert (recipe.epochs, recipe.seed, recipe.augmentation) == (7, 1, "shift")
    assert Recipe.parse(text) == (text, recipe)
    assert all(f"{field.name}=" in text for field in fields(Recipe))


def test_whole_numbers_stand_for_numbers() -> None:
    assert Recipe.parse("digits(rate=1)") == Recipe.parse("digits(rate=1.0)")


def test_the_preset_of_the_paper_is_the_recipe_on_record() -> None:
    assert asdict(PRESETS["deit"]) == {
        "epochs": 300,
        "batch_size": 1024,
        "rate": 1e-3,
        "decay": 0.05,
        "warmup_epochs": 5,
        "warmup_rate": 1e-6,
        "least_rate": 1e-5,
        "cooldown_epochs": 10,
        "clip_norm": 0.0,
        "smoothing": 0.1,
        "mixup": 0.8,
        "cutmix": 1.0,
        "augmentation": "imagenet",
        "jitter": 0.4,
        "erasing": 0.25,
        "repeats": 3,
        "ema": 0.99996,
        "seed": 0,
    }
    fan = PRESETS["fan"]
    assert (fan.batch_size, fan.rate, fan.least_rate, fan.ema, fan.seed) == (512, 2e-3, 1e-6, 0.99992, 42)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("digits(epochs=0)", "epochs is 0; expected a whole number of at least 1"),
        ("digits(rate=-1)", "rate is -1.0"),
        ("digits(smoothing=1)", r"smoothing is 1.0; expected a number in \[0, 1\)"),
        ("digits(mixup=-1)", "mixup is -1.0"),
        ("digits(augmentation=flip)", "augmentation is 'flip'; expected one of plain, shift, imagenet"),
        ("digits(epochs=1.5)", "epochs is 1.5; expected a whole number"),
    ],
)
def test_a_value_out_of_range_is_named(text: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        Recipe.parse(text)


def test_unknown_recipes_and_fields_are_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no recipe named 'diet'"):
        Recipe.parse("diet")
    with pytest.raises(UnknownName, match="no argument of recipe digits named 'epoch'"):
        Recipe.parse("digits(epoch=3)")
