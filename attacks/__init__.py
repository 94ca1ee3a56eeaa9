"""Functions that search for a harmful change. One idea a file, one line each in the catalogue."""

from robustkpca.registry import Entry

CATALOGUE = {
    "fgsm": Entry(
        "robustkpca.attacks.fgsm:fgsm",
        "one step of steepest ascent",
        "Goodfellow et al. 2015",
        ("white-box", "gradient", "linf", "l2", "l1"),
        published="robustkpca.attacks.fgsm:published_fgsm",
    ),
    "pgd": Entry(
        "robustkpca.attacks.pgd:pgd",
        "projected gradient descent from a random start",
        "Madry et al. 2018",
        ("white-box", "gradient", "linf", "l2", "l1"),
        published="robustkpca.attacks.pgd:published_pgd",
    ),
    "noise": Entry(
        "robustkpca.attacks.noise:noise",
        "a random point of the budget, without looking at the model",
        "cleverhans 4",
        ("black-box", "linf", "l2", "l1"),
        published="robustkpca.attacks.noise:noise",
    ),
    "apgd_ce": Entry(
        "robustkpca.attacks.apgd:apgd_ce",
        "Auto-PGD, which chooses its own step size, on the cross-entropy",
        "Croce and Hein 2020",
        ("white-box", "gradient", "linf", "l2", "l1"),
    ),
    "apgd_dlr": Entry(
        "robustkpca.attacks.apgd:apgd_dlr",
        "Auto-PGD on the difference of logits ratio, which large logits cannot hide",
        "Croce and Hein 2020",
        ("white-box", "gradient", "linf", "l2", "l1"),
    ),
    "apgd_t": Entry(
        "robustkpca.attacks.apgd:apgd_t",
        "Auto-PGD towards each of the most likely other classes",
        "Croce and Hein 2020",
        ("white-box", "gradient", "linf", "l2", "l1"),
    ),
    "fab": Entry(
        "robustkpca.attacks.fab:fab",
        "FAB, a walk along the decision boundary for the smallest harmful change",
        "Croce and Hein 2020",
        ("white-box", "gradient", "minimum-norm", "linf", "l2", "l1"),
    ),
    "fab_t": Entry(
        "robustkpca.attacks.fab:fab_t",
        "FAB towards each of the most likely other classes",
        "Croce and Hein 2020",
        ("white-box", "gradient", "minimum-norm", "linf", "l2", "l1"),
    ),
    "square": Entry(
        "robustkpca.attacks.square:square",
        "a random search with square-shaped changes that sees logits alone",
        "Andriushchenko et al. 2020",
        ("black-box", "linf", "l2", "l1"),
    ),
}
