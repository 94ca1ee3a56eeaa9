"""What the package announces; nothing else is imported before it is asked for."""

from robustkpca.registry import Entry

MODELS = {
    "nearest_mean": Entry(
        "robustkpca_example.models:nearest_mean",
        "distance to the mean picture of each of scikit-learn's digits",
        "Müller 2025",
        ("digits", "linear"),
    ),
}
ATTACKS = {
    "restarted_fgsm": Entry(
        "robustkpca_example.attacks:restarted_fgsm",
        "steepest steps from several random starts",
        "Müller 2025",
        ("white-box", "gradient", "linf", "l2"),
    ),
    "lighten": Entry(
        "robustkpca_example.attacks:lighten",
        "the same amount added to every pixel",
        "Müller 2025",
        ("black-box", "linf", "l2"),
    ),
}
CORRUPTIONS = {
    "dim": Entry("robustkpca_example.corruptions:dim", "less light and some grain", "Müller 2025", ("weather",)),
}
BOARDS = {
    "lights": Entry("robustkpca_example.boards:LIGHTS", "light switched on and off", "Müller 2025", ("digits",)),
}
