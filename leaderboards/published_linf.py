"""Gradient attacks as the kernel-PCA attention papers ran them: eps in normalised units, no clip, own predictions.

Source:
    KPCA_code Attack/engine.py (Teo and Nguyen, NeurIPS 2024): eps from i/255, i = 1..6; PGD 20 steps of 0.15 eps.
"""

from robustkpca.boards import Board, Column

BOARD = Board(
    "published-linf",
    "Accuracy under attack, published protocol",
    tuple(
        Column(f"published {name} {numerator}/255", (f"published/{attack}@linf:{numerator}/255",))
        for name, attack in (("FGSM", "fgsm"), ("PGD-20", "pgd"))
        for numerator in range(1, 7)
    ),
)
