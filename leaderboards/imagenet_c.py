"""The 15 corruptions of ImageNet-C, applied on the fly, each the mean of its five severities.

Source:
    Hendrycks and Dietterich 2019, arXiv:1903.12261, section 4. Stored copies of ImageNet-C are other data.
"""

from robustkpca.boards import Board, Column

CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)


def severities(corruption: str) -> tuple[str, ...]:
    """Return the five threats of a corruption."""
    return tuple(f"{corruption}:{severity}" for severity in range(1, 6))


_ALL = tuple(threat for corruption in CORRUPTIONS for threat in severities(corruption))

BOARD = Board(
    "imagenet-c",
    "Accuracy under corruptions",
    (
        Column("clean", ("clean",)),
        *(Column(corruption.replace("_", " "), severities(corruption), "mean") for corruption in CORRUPTIONS),
        Column("mean", _ALL, "mean"),
        Column("mCE", _ALL, "mce"),
    ),
)

CIFAR = Board(
    "cifar10-c",
    "Accuracy under corruptions, CIFAR constants",
    (
        Column("clean", ("clean",)),
        *(
            Column(corruption.replace("_", " "), severities(f"{corruption}(constants=cifar)"), "mean")
            for corruption in CORRUPTIONS
        ),
        Column("mean", tuple(t for one in CORRUPTIONS for t in severities(f"{one}(constants=cifar)")), "mean"),
    ),
)
