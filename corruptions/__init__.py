"""Functions that change an input without looking at the model. One idea a file, one line each in the catalogue."""

from robustkpca.registry import Entry

CATALOGUE: dict[str, Entry] = {}
