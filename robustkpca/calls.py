"""A name with arguments, as text and as a value: ``pgd(steps=20)``, ``rpc_symvit_tiny(layers=[0,1])``.

One small grammar serves models, threats and preprocessing, so that each of them has exactly one canonical text.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from robustkpca.errors import BadValue, unknown

Value = bool | int | float | Fraction | str | None | tuple["Value", ...]

_NAME = re.compile(r"[^()\s,=]+")
_DIGITS = 300
"""Most digits of a number in a text, above and below the line of a fraction; such a number has a value as a float."""
_LONG = re.compile(rf"[+-]?\d[\d_]{{{_DIGITS},}}")
_EXPONENT = re.compile(r"[eE][+-]?\d{4,}$")
_FORBIDDEN = re.compile(r"[\[\]\s,=()]")


@dataclass(frozen=True)
class Call:
    """A name and its arguments; equal calls have equal text.

    The text sorts the arguments. Values are integers, floats, fractions (``1/3``), ``true``, ``false``,
    ``none``, lists (``[0,1]``) and words.
    """

    name: str
    arguments: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", MappingProxyType(dict(sorted(self.arguments.items()))))

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Call, (self.name, dict(self.arguments))

    @classmethod
    def parse(cls, text: str) -> Call:
        """Read ``name`` or ``name(argument=value,...)``.

        Raises:
            BadValue: If the text has another form.
        """
        text = text.strip()
        name, bracket, rest = text.partition("(")
        if not name or not _NAME.fullmatch(name):
            raise BadValue(f"{text!r}: expected a name, or NAME(argument=value,...)")
        if not bracket:
            return cls(name)
        if not rest.endswith(")"):
            raise BadValue(f"{text!r}: the bracket is not closed; expected NAME(argument=value,...)")
        arguments: dict[str, Value] = {}
        for part in split(rest[:-1]):
            key, equals, value = part.partition("=")
            key = key.strip()
            if not equals or not key.isidentifier() or not value.strip():
                raise BadValue(f"{text!r}: {part.strip()!r} is not of the form argument=value")
            if key in arguments:
                raise BadValue(f"{text!r}: argument {key!r} is given twice")
            arguments[key] = parse_value(value)
        return cls(name, arguments)

    def __str__(self) -> str:
        if not self.arguments:
            return self.name
        inside = ",".join(f"{key}={format_value(value)}" for key, value in self.arguments.items())
        return f"{self.name}({inside})"

    def with_arguments(self, **arguments: Value) -> Call:
        """Give some arguments anew; the others stay."""
        return Call(self.name, {**self.arguments, **arguments})


def complete(call: Call, function: Callable[..., Any], kind: str, *, given: frozenset[str] = frozenset()) -> Call:
    """Fill in the defaults of ``function`` so that two spellings of one call have one text.

    Args:
        call: What the user wrote.
        function: What will be called; its keyword arguments with defaults are the options of the call. Where some of them
            depend on the value of another, it has an attribute ``for_arguments`` that takes what the user wrote and
            returns a function with the options that go with it.
        kind: The word for it in error messages, such as ``attack``.
        given: Arguments that the caller supplies itself, which a user may not write.

    Raises:
        UnknownName: If the call names an argument that the function lacks.
        BadValue: If an argument without default is missing, or has the wrong type.
    """
    depending = getattr(function, "for_arguments", None)
    signature = inspect.signature(function if depending is None else depending(call.arguments))
    parameters = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if name not in given and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    for name in call.arguments:
        if name not in parameters:
            raise unknown(f"argument of {kind} {call.name}", name, parameters)
    arguments: dict[str, Value] = {}
    for name, parameter in parameters.items():
        if name in call.arguments:
            value = call.arguments[name]
            one_type = "|" not in str(parameter.annotation)  # otherwise the function itself checks
            where = f"{kind} {call.name}: {name}"
            arguments[name] = _like(parameter.default, value, where) if one_type else _scalar(value)
        elif parameter.default is parameter.empty:
            raise BadValue(f"{kind} {call.name}: argument {name} is missing; write {call.name}({name}=...)")
        else:
            default = parameter.default
            arguments[name] = tuple(default) if isinstance(default, list) else default
    return Call(call.name, arguments)


def parse_value(text: str) -> Value:
    """Read one value of the grammar of `Call`."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return tuple(parse_value(part) for part in split(text[1:-1]))
    if _LONG.match(text) or _LONG.match(text.rpartition("/")[2]):
        raise BadValue(f"{text[:20]}...: expected a number of at most {_DIGITS} digits")
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in ("none", "null"):
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if re.fullmatch(r"-?\d+/\d+", text):
        try:
            return Fraction(text)
        except ZeroDivisionError:
            raise BadValue(f"{text!r}: the denominator is zero") from None
    if not text or _FORBIDDEN.search(text):
        raise BadValue(f"{text!r}: expected a number, true, false, none, a list such as [0,1], or a word")
    return text


def exact(text: str) -> Fraction:
    """Read a number without rounding it: ``8/255``, ``0.5``, ``1e-3``.

    Raises:
        ValueError: If it is none, divides by zero, or has more digits than a text can have.
    """
    text = text.strip()
    if len(text) > 2 * _DIGITS + 2 or _EXPONENT.search(text):
        raise ValueError(f"{text[:20]!r} has too many digits")
    try:
        number = Fraction(text)
    except ZeroDivisionError:
        raise ValueError(f"{text!r} divides by zero") from None
    if max(abs(number.numerator), number.denominator) >= 10**_DIGITS:
        raise ValueError(f"{text!r} has too many digits")
    return number


def format_value(value: Value) -> str:
    """Write one value so that `parse_value` reads the same."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return "[" + ",".join(format_value(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value)
    return str(value)


def split(text: str) -> list[str]:
    """Split at the commas that stand outside brackets, square or round."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    if depth:
        raise BadValue(f"{text!r}: a bracket is not closed")
    return [part for part in parts if part.strip()] if text.strip() else []


def _scalar(value: Value) -> Value:
    """Write a list of one as its element, so that ``layers=[0]`` and ``layers=0`` are one text."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def _like(default: Any, value: Value, where: str) -> Value:
    """Bring a value to the type of the default it replaces: ``eps=1`` and ``eps=1.0`` are one text."""
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise BadValue(f"{where} is {format_value(value)}; expected true or false")
    elif isinstance(default, int):
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadValue(f"{where} is {format_value(value)}; expected a whole number")
    elif isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
            raise BadValue(f"{where} is {format_value(value)}; expected a number")
        value = float(value)
        if not math.isfinite(value) and math.isfinite(default):
            raise BadValue(f"{where} is {value}; expected a finite number")
    return value
