"""The board of a first run: five threats that a small grey-image model meets within seconds."""

from robustkpca.boards import Board, Column

_ATTACKS = {
    "noise Linf 0.05": "noise@linf:0.05",
    "FGSM Linf 0.05": "fgsm@linf:0.05",
    "PGD-20 Linf 0.05": "pgd@linf:0.05",
    "PGD-20 L2 0.25": "pgd@l2:0.25",
}
BOARD = Board(
    "quick",
    "Robust accuracy",
    (
        Column("clean", ("clean",)),
        *(Column(title, (threat,)) for title, threat in _ATTACKS.items()),
        Column("worst of all", tuple(_ATTACKS.values())),
    ),
)
