"""One architecture under several names: each name has defaults of its own, and a fixed or a free choice of attention."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from robustkpca.models.mechanisms import attention_options

Factory = Callable[..., Any]


def family(architecture: Factory, attention: str = "", /, **defaults: Any) -> Callable[[Factory], Factory]:
    """Give a factory the options of an architecture and of its attention.

    Args:
        architecture: Its keyword arguments with defaults are the options, among them ``attention``.
        attention: The one mechanism of the factory; empty where ``attention`` stays an option, whose value then decides
            which further options there are.
        **defaults: Values that differ from the architecture's, and from the mechanism's.

    Returns:
        A decorator. The decorated function is called with all options of its own signature that were given, and with the
        defaults; its attribute ``for_arguments`` is what `calls.complete` asks for.
    """

    def decorate(function: Factory) -> Factory:
        def signature(arguments: Mapping[str, Any]) -> inspect.Signature:
            chosen = attention or arguments.get("attention", defaults.get("attention", "softmax"))
            own = inspect.signature(architecture).parameters
            named = {n: p for n, p in own.items() if p.kind is p.KEYWORD_ONLY and not (attention and n == "attention")}
            options = {**named, **attention_options(chosen)}
            return inspect.Signature(
                [p.replace(default=defaults.get(name, p.default)) for name, p in options.items()],
                return_annotation=inspect.signature(architecture).return_annotation,
            )

        @wraps(function)
        def factory(**options: Any) -> Any:
            fixed = {"attention": attention} if attention else {}
            return function(**{**defaults, **fixed, **options})

        def for_arguments(arguments: Mapping[str, Any]) -> Factory:
            @wraps(function)
            def narrowed(**options: Any) -> Any:
                return factory(**options)

            narrowed.__signature__ = signature(arguments)  # type: ignore[attr-defined]
            return narrowed

        factory.__signature__ = signature({})  # type: ignore[attr-defined]
        if not attention:
            factory.for_arguments = for_arguments  # type: ignore[attr-defined]
        return factory

    return decorate
