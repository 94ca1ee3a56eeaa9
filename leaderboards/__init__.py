"""Which columns a table has. One board a file, one line each in the catalogue."""

from robustkpca.registry import Entry

CATALOGUE = {
    "quick": Entry(
        "robustkpca.leaderboards.quick:BOARD",
        "clean, noise, FGSM and PGD at radii for small grey images",
        tags=("images", "pixel"),
    ),
    "linf": Entry(
        "robustkpca.leaderboards.linf:BOARD",
        "clean, FGSM and PGD-20 at 1/255 to 8/255, sound protocol",
        tags=("images", "pixel"),
    ),
    "published-linf": Entry(
        "robustkpca.leaderboards.published_linf:BOARD",
        "FGSM and PGD-20 on normalised images at 1/255 to 6/255, as the papers ran them",
        "Teo and Nguyen 2024",
        tags=("images", "published"),
    ),
    "imagenet-c": Entry(
        "robustkpca.leaderboards.imagenet_c:BOARD",
        "15 corruptions at five severities on the fly, their means and mCE",
        "Hendrycks and Dietterich 2019",
        tags=("images", "corruptions"),
    ),
    "cifar10-c": Entry(
        "robustkpca.leaderboards.imagenet_c:CIFAR",
        "15 corruptions at five severities on the fly with the constants for 32 pixels",
        "Hendrycks and Dietterich 2019",
        tags=("images", "corruptions"),
    ),
    "language": Entry(
        "robustkpca.leaderboards.language:BOARD",
        "perplexity, clean and under five corruptions of text, ranked by word swaps",
        tags=("text",),
    ),
    "sentences": Entry(
        "robustkpca.leaderboards.language:SENTENCES",
        "accuracy, clean and under five corruptions of text, and their mean",
        tags=("text",),
    ),
}
