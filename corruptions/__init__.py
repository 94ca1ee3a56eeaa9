"""Functions that change an input without looking at the model. One idea a file, one line each in the catalogue."""

from robustkpca.registry import Entry

_SOURCE = "Hendrycks and Dietterich 2019"


def _one(name: str, module: str, summary: str, *tags: str) -> tuple[str, Entry]:
    return name, Entry(f"robustkpca.corruptions.{module}:{name}", summary, _SOURCE, ("images", *tags))


def _text(name: str, summary: str, source: str = "") -> tuple[str, Entry]:
    target = f"robustkpca.corruptions.text:{name.replace('-', '_')}"
    return name, Entry(target, summary, source, ("text", "ungraded", "random"))


CATALOGUE: dict[str, Entry] = dict(
    [
        _one("gaussian_noise", "noise", "normal noise on every value", "imagenet-c", "noise", "random"),
        _one("shot_noise", "noise", "too few photons", "imagenet-c", "noise", "random"),
        _one("impulse_noise", "noise", "salt and pepper", "imagenet-c", "noise", "random"),
        _one("defocus_blur", "blur", "out of focus", "imagenet-c", "blur"),
        _one("glass_blur", "blur", "seen through ribbed glass", "imagenet-c", "blur", "random"),
        _one("motion_blur", "blur", "smeared in a random direction", "imagenet-c", "blur", "random"),
        _one("zoom_blur", "blur", "moving towards the camera", "imagenet-c", "blur"),
        _one("snow", "weather", "falling snow", "imagenet-c", "weather", "random"),
        _one("frost", "weather", "a frozen window", "imagenet-c", "weather", "random"),
        _one("fog", "weather", "clouds of fog", "imagenet-c", "weather", "random"),
        _one("brightness", "digital", "raised brightness", "imagenet-c", "digital"),
        _one("contrast", "digital", "lowered contrast", "imagenet-c", "digital"),
        _one("elastic_transform", "elastic", "stretched like rubber", "imagenet-c", "digital", "random"),
        _one("pixelate", "digital", "enlarged from fewer pixels", "imagenet-c", "digital"),
        _one("jpeg_compression", "digital", "compressed as JPEG", "imagenet-c", "digital"),
        _one(
            "speckle_noise", "noise", "normal noise in proportion to the value", "imagenet-c-extra", "noise", "random"
        ),
        _one("gaussian_blur", "blur", "averaged under a bell curve", "imagenet-c-extra", "blur"),
        _one("spatter", "spatter", "drops of water or mud", "imagenet-c-extra", "weather", "random"),
        _one("saturate", "digital", "less or more colour", "imagenet-c-extra", "digital"),
        _text("word-swap", "words that become AAA", "Teo and Nguyen 2024"),
        _text("word-drop", "words that are left out"),
        _text("character-swap", "neighbouring letters exchanged"),
        _text("character-delete", "letters left out"),
        _text("keyboard", "letters of neighbouring keys"),
    ]
)
