"""Files become samples: a folder, an array file or a bundled set is recognised by its layout.

from robustkpca.data import open_data
dataset = open_data("imagenet/val")
"""

from __future__ import annotations

from typing import Any

_WHERE = {
    "ArrayImages": "robustkpca.data.arrays",
    "Dataset": "robustkpca.data.dataset",
    "array_data": "robustkpca.data.arrays",
    "checked_images": "robustkpca.data.inputs",
    "checked_labels": "robustkpca.data.inputs",
    "open_data": "robustkpca.data.layout",
}
__all__ = ["ArrayImages", "Dataset", "array_data", "checked_images", "checked_labels", "open_data"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'robustkpca.data' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
