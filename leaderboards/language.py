"""Perplexity of language models, clean and with changed words."""

from robustkpca.boards import Board, Column

_THREATS = ("clean", "word-swap", "word-drop", "character-swap", "character-delete", "keyboard")
BOARD = Board(
    "language",
    "Perplexity",
    tuple(Column(threat, (threat,), "perplexity") for threat in _THREATS),
    rank_by="word-swap",
)
