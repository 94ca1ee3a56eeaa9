"""Gradient attacks in the L-infinity ball, in pixels."""

from robustkpca.boards import Board, Column

BOARD = Board(
    "linf",
    "Robust accuracy, Linf",
    (
        Column("clean", ("clean",)),
        *(
            Column(f"{name} {numerator}/255", (f"{attack}@linf:{numerator}/255",))
            for name, attack in (("FGSM", "fgsm"), ("PGD-20", "pgd"))
            for numerator in (1, 2, 4, 8)
        ),
    ),
)
