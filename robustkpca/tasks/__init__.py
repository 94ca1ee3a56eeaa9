"""What is measured per sample."""

from robustkpca.registry import Entry

CATALOGUE = {
    "classification": Entry(
        "robustkpca.tasks.classification:CLASSIFICATION",
        "one label per image; a verdict per sample",
        tags=("images",),
    ),
    "language": Entry(
        "robustkpca.tasks.language:LANGUAGE",
        "the losses of the tokens of a line; a perplexity over all lines",
        tags=("text",),
    ),
    "sentences": Entry(
        "robustkpca.tasks.sentences:SENTENCES",
        "one label per sentence; a verdict per sample",
        tags=("text",),
    ),
}
