"""Which attacks of other libraries there are, as lines of the catalogue; nothing is imported before one is asked for."""

from robustkpca.registry import Entry

_WHITE = ("reference", "white-box", "gradient")
_BLACK = ("reference", "black-box")
_ALL = ("linf", "l2", "l1")


def _official(name: str, summary: str, source: str, tags: tuple[str, ...] = _WHITE) -> Entry:
    target = f"robustkpca.attacks.pyautoattack_engine:{name}"
    return Entry(target, f"{summary}, by the authors' package", source, (*tags, *_ALL), engine="pyautoattack")


PYAUTOATTACK = {
    "pyautoattack/apgd_ce": _official("apgd_ce", "Auto-PGD on the cross-entropy", "Croce and Hein 2020"),
    "pyautoattack/apgd_dlr": _official("apgd_dlr", "Auto-PGD on the logits ratio", "Croce and Hein 2020"),
    "pyautoattack/apgd_t": _official("apgd_t", "targeted Auto-PGD", "Croce and Hein 2020"),
    "pyautoattack/fab": _official("fab", "FAB", "Croce and Hein 2020", (*_WHITE, "minimum-norm")),
    "pyautoattack/fab_t": _official("fab_t", "targeted FAB", "Croce and Hein 2020", (*_WHITE, "minimum-norm")),
    "pyautoattack/square": _official("square", "Square Attack", "Andriushchenko et al. 2020", _BLACK),
    "pyautoattack/autoattack": _official(
        "autoattack",
        "AutoAttack as a whole",
        "Croce and Hein 2020",
        ("reference", "white-box", "black-box", "gradient"),
    ),
}
"""Under the name of the attack of ours that does the same."""

_LINF, _L2, _BOTH = ("linf",), ("l2",), ("linf", "l2")
_TORCHATTACKS = {
    "FGSM": (_WHITE, _LINF),
    "BIM": (_WHITE, _LINF),
    "RFGSM": (_WHITE, _LINF),
    "PGD": (_WHITE, _LINF),
    "EOTPGD": (_WHITE, _LINF),
    "FFGSM": (_WHITE, _LINF),
    "TPGD": (_WHITE, _LINF),
    "MIFGSM": (_WHITE, _LINF),
    "UPGD": (_WHITE, _LINF),
    "APGD": (_WHITE, _BOTH),
    "APGDT": (_WHITE, _BOTH),
    "DIFGSM": (_WHITE, _LINF),
    "TIFGSM": (_WHITE, _LINF),
    "Jitter": (_WHITE, _LINF),
    "NIFGSM": (_WHITE, _LINF),
    "PGDRS": (_WHITE, _LINF),
    "SINIFGSM": (_WHITE, _LINF),
    "VMIFGSM": (_WHITE, _LINF),
    "VNIFGSM": (_WHITE, _LINF),
    "SPSA": (_BLACK, _LINF),
    "PIFGSM": (_WHITE, _LINF),
    "PIFGSMPP": (_WHITE, _LINF),
    "PGDL2": (_WHITE, _L2),
    "PGDRSL2": (_WHITE, _L2),
    "FAB": ((*_WHITE, "minimum-norm"), _BOTH),
    "AutoAttack": ((*_WHITE, "black-box"), _BOTH),
    "Square": (_BLACK, _BOTH),
    "CW": ((*_WHITE, "minimum-norm"), _ALL),
    "DeepFool": ((*_WHITE, "minimum-norm"), _ALL),
    "EADEN": ((*_WHITE, "minimum-norm"), _ALL),
    "EADL1": ((*_WHITE, "minimum-norm"), _ALL),
    "SparseFool": ((*_WHITE, "minimum-norm"), _ALL),
    "JSMA": ((*_WHITE, "minimum-norm"), _ALL),
    "OnePixel": ((*_BLACK, "minimum-norm"), _ALL),
    "Pixle": ((*_BLACK, "minimum-norm"), _ALL),
    "GN": ((*_BLACK, "minimum-norm"), _ALL),
}
"""Those that take a radius name the norms they take; the others are held to whatever budget is asked for."""

TORCHATTACKS = {
    f"torchattacks/{name}": Entry(
        f"robustkpca.attacks.torchattacks_engine:{name}",
        f"{name} of torchattacks, an extra",
        "Kim 2020, arXiv:2010.01950",
        (*tags, *norms),
        engine="torchattacks",
    )
    for name, (tags, norms) in _TORCHATTACKS.items()
}
"""Under the names of the package. MultiAttack and LGV need more than a model, and VANILA does nothing."""
