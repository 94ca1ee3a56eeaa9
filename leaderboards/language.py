"""What reads text, clean and with changed words and letters: perplexities, and accuracies of classifiers."""

from robustkpca.boards import Board, Column

_THREATS = ("clean", "word-swap", "word-drop", "character-swap", "character-delete", "keyboard")
BOARD = Board(
    "language",
    "Perplexity",
    tuple(Column(threat, (threat,), "perplexity") for threat in _THREATS),
    rank_by="word-swap",
)
SENTENCES = Board(
    "sentences",
    "Accuracy on sentences",
    (*(Column(threat, (threat,)) for threat in _THREATS), Column("mean of changes", _THREATS[1:], "mean")),
)
