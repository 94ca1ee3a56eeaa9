"""Robustness evaluation and attack benchmarks for PyTorch models.

import robustkpca as rk
result = rk.attack(model, images, labels, "pgd(steps=20)@linf:8/255")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

# In a checkout the three wings lie beside the package instead of inside it.
if not (Path(__file__).parent / "attacks").is_dir():
    __path__.append(str(Path(__file__).parent.parent))

_WHERE = {
    "create_model": "robustkpca.models",
    "load_model": "robustkpca.models",
    "list_models": "robustkpca.models",
    "wrap": "robustkpca.models.loading",
    "list_threats": "robustkpca.threats",
    "threat": "robustkpca.threats",
    "attack": "robustkpca.evaluation",
    "score": "robustkpca.evaluation",
    "corrupt": "robustkpca.corrupting",
    "read": "robustkpca.store",
    "leaderboard": "robustkpca.boards",
}
__all__ = [
    "attack",
    "corrupt",
    "create_model",
    "leaderboard",
    "list_models",
    "list_threats",
    "load_model",
    "read",
    "score",
    "threat",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'robustkpca' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
