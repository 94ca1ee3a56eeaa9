"""Functions that search for a harmful change. One idea a file, one line each in the catalogue."""

from robustkpca.attacks.engines import PYAUTOATTACK, TORCHATTACKS
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
        ("white-box", "gradient", "three-classes", "linf", "l2", "l1"),
    ),
    "apgd_t": Entry(
        "robustkpca.attacks.apgd:apgd_t",
        "Auto-PGD towards each of the most likely other classes",
        "Croce and Hein 2020",
        ("white-box", "gradient", "four-classes", "linf", "l2", "l1"),
        version=2,
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
        version=2,
    ),
    "cw": Entry(
        "robustkpca.attacks.cw:cw",
        "the smallest L2 change in tanh space, by Adam and a search for the weight of the margin",
        "Carlini and Wagner 2017",
        ("white-box", "gradient", "minimum-norm", "l2"),
        published="robustkpca.attacks.cw:published_cw",
    ),
    "sld": Entry(
        "robustkpca.attacks.sld:sld",
        "sparse L1 descent, whose steps change a small share of the pixels",
        "Tramer and Boneh 2019",
        ("white-box", "gradient", "l1"),
        published="robustkpca.attacks.sld:published_sld",
    ),
    "spsa": Entry(
        "robustkpca.attacks.spsa:spsa",
        "descent along differences in random directions, without gradients",
        "Uesato et al. 2018",
        ("black-box", "linf", "l2"),
        published="robustkpca.attacks.spsa:published_spsa",
    ),
    "hsja": Entry(
        "robustkpca.attacks.hsja:hsja",
        "HopSkipJump, a walk along the decision boundary that sees decisions alone",
        "Chen et al. 2020",
        ("black-box", "decision", "minimum-norm", "linf", "l2"),
        published="robustkpca.attacks.hsja:published_hsja",
    ),
    "fgsm_t": Entry(
        "robustkpca.attacks.targeted:fgsm_t",
        "one step towards a certain class",
        "Kurakin et al. 2017",
        ("white-box", "gradient", "targeted", "linf", "l2", "l1"),
    ),
    "pgd_t": Entry(
        "robustkpca.attacks.targeted:pgd_t",
        "projected gradient descent towards a certain class",
        "Madry et al. 2018",
        ("white-box", "gradient", "targeted", "linf", "l2", "l1"),
    ),
    "cw_t": Entry(
        "robustkpca.attacks.targeted:cw_t",
        "the smallest L2 change towards a certain class",
        "Carlini and Wagner 2017",
        ("white-box", "gradient", "targeted", "minimum-norm", "l2"),
    ),
    "autoattack": Entry(
        "robustkpca.attacks.autoattack:autoattack",
        "Auto-PGD, targeted Auto-PGD, targeted FAB and Square in turn, each on what still stands",
        "Croce and Hein 2020",
        ("white-box", "gradient", "sequence", "linf", "l2", "l1"),
    ),
    **PYAUTOATTACK,
    **TORCHATTACKS,
}
