"""What a model from elsewhere says about its own preprocessing."""

from __future__ import annotations

from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing

ATTRIBUTE = "preprocessing"


def announced_preprocessing(model: object, name: str) -> Preprocessing:
    """Read the attribute ``preprocessing`` of a model.

    Args:
        model: Any object; the attribute is a `Preprocessing` or its text.
        name: What to call the model in an error.

    Returns:
        What the model says; where it says nothing, three channels and nothing else.

    Raises:
        BadValue: If the attribute is something else.
    """
    own = getattr(model, ATTRIBUTE, None)
    if own is None:
        return Preprocessing()
    if isinstance(own, str):
        return Preprocessing.parse(own)
    if not isinstance(own, Preprocessing):
        raise BadValue(
            f"{name}: its attribute preprocessing is a {type(own).__name__}; expected a robustkpca Preprocessing or its"
            " text, such as 'preprocessing(crop=224,resize=256)'; rename it if it means something else"
        )
    return own
