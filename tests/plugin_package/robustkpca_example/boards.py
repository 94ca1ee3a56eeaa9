"""A board whose threats are written out more fully than records have them."""

from robustkpca.boards import Board, Column

LIGHTS = Board(
    "example/lights",
    "Digits by night",
    (
        Column("clean", ("clean",)),
        Column("dark", ("example/dim(grain=4.0):3",)),
        Column("light", ("example/lighten@linf:0.10",)),
        Column("FGSM", ("example/restarted_fgsm(restarts=3)@linf:1/10",)),
    ),
)
