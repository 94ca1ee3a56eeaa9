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
}
