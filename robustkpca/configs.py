"""A YAML file becomes plain values, or one line that says why it does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from robustkpca.errors import BadValue

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$")
_NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What PyYAML's constructors raise on tags and dates that do not fit their values."""


class _Loader(yaml.SafeLoader):
    """Reads plain values alone, each key once, and no number to the base of sixty such as ``1:30``."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands there twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, _INTEGER if tag == "tag:yaml.org,2002:int" else pattern)
        for tag, pattern in resolvers
        if tag != "tag:yaml.org,2002:timestamp"
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_config(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        BadValue: If the file is missing, no YAML, or holds something else.
    """
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise BadValue(f"config {path}: {error.strerror}; expected a YAML file") from None
    except yaml.YAMLError as error:
        raise BadValue(f"config {path} is no YAML: {' '.join(str(error).split())}") from None
    except _NONSENSE as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise BadValue(f"config {path} is no YAML: {reason[:200]}") from None
    if not isinstance(values, dict):
        raise BadValue(
            f"config {path}: expected a mapping such as 'models: [symvit_digits]', got {type(values).__name__}"
        )
    return values
