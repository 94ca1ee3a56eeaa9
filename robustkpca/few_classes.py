"""What an attack of AutoAttack becomes where a model has fewer classes than its formulas want."""

from __future__ import annotations

from robustkpca.threats import ThreatModel

THREE_CLASSES = "three-classes"
"""Tag of an attack whose loss is divided by a spread that takes a third logit."""
FOUR_CLASSES = "four-classes"
"""Tag of an attack whose loss is divided by a spread that takes a fourth logit."""
_WANTED = {THREE_CLASSES: 3, FOUR_CLASSES: 4}


def few_classes(threat: ThreatModel, classes: int) -> list[str]:
    """Return a remark for every part of a threat that runs in another form than with many classes.

    Args:
        threat: A single one or a sequence.
        classes: Logits of the model.
    """
    remarks = []
    for part in threat.parts:
        if part.entry is None:
            continue
        for tag, wanted in _WANTED.items():
            if tag in part.entry.tags and classes < wanted:
                instead = "the plain margin" if classes < 3 else f"the spread of {classes} logits"
                remarks.append(
                    f"few classes: {part.call.name} takes {instead}, its loss is defined from {wanted} classes on"
                )
        targets = part.call.arguments.get("targets")
        if isinstance(targets, int) and targets > classes - 1:
            remarks.append(f"few classes: {part.call.name} goes to {classes - 1} classes, not to {targets}")
    return list(dict.fromkeys(remarks))
