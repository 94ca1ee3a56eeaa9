"""Models from a user's own file: ``path/to/file.py:function``, where ``function`` makes or is an ``nn.Module``."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

import robustkpca
from robustkpca.calls import Value
from robustkpca.errors import BadValue, Unusable, unknown
from robustkpca.models.announced import ATTRIBUTE, announced_preprocessing

SEPARATOR = ".py:"
_PREFIX = "_robustkpca_file_"


def create(reference: str, **overrides: Any) -> nn.Module:
    """Build a model from a user's file.

    While the file runs, its folder is the first place where imports are looked for. What it imported from there is
    forgotten afterwards, so that two files may each have their own ``layers.py``.

    Args:
        reference: ``path/to/file.py:name``. The name is a function or class that returns an ``nn.Module``, or a module.
        **overrides: Arguments for the function.

    Returns:
        The module with ``preprocessing``: its own where it has that attribute, as a `Preprocessing` or its text; otherwise
        three channels and nothing else.

    Raises:
        BadValue: If the reference has another form, the arguments do not fit, or the result is not an ``nn.Module``.
        UnknownName: If the file has no such name.
        Unusable: If the file cannot be read, or it or the function raises an error.
    """
    return build(reference, overrides)[0]


def build(reference: str, overrides: Mapping[str, Any]) -> tuple[nn.Module, dict[str, Value]]:
    """Build a model as `create`, and tell the defaults of its function that a name can hold.

    Args:
        reference: As for `create`.
        overrides: Arguments for the function.
    """
    path, name = split_reference(reference)
    with _importable(path.parent):
        module = _executed(path, reference)
        if not hasattr(module, name):
            known = [key for key, value in vars(module).items() if callable(value) or isinstance(value, nn.Module)]
            raise unknown(f"function in {path}", name, known)
        thing = getattr(module, name)
        model = _called(thing, reference, path, dict(overrides))
    if not isinstance(model, nn.Module):
        raise BadValue(f"{reference}: the result is a {type(model).__name__}; expected a torch.nn.Module")
    with suppress(AttributeError, TypeError):  # where it is a property, it says so itself
        setattr(model, ATTRIBUTE, announced_preprocessing(model, reference))
    return model, {} if isinstance(thing, nn.Module) else _defaults(thing)


def _defaults(function: Callable[..., Any]) -> dict[str, Value]:
    """Return the defaults that are numbers, truth values, words or None, so that writing them out names the same model."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return {}
    found: dict[str, Value] = {}
    for one in parameters:
        default: Any = one.default
        if isinstance(default, bool | int | float | str) or default is None:
            found[one.name] = default
    return found


def split_reference(reference: str) -> tuple[Path, str]:
    """Return the file and the name behind ``path/to/file.py:name``.

    Raises:
        BadValue: If the reference has another form.
    """
    path, separator, name = reference.rpartition(SEPARATOR)
    if not separator or not path or not name.isidentifier():
        raise BadValue(f"{reference!r}: expected path/to/file.py:function")
    return Path(f"{path}.py").expanduser(), name


def source_digest(path: Path) -> str:
    """Return the sha256 of a file, as 64 hexadecimal digits. Files that it imports are not covered.

    Raises:
        Unusable: If the file cannot be read.
    """
    return sha256(_read(path)).hexdigest()


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a name may hold what no file system allows
        reason = getattr(error, "strerror", None) or error
        raise Unusable(f"{path}: cannot be read ({reason}); expected path/to/file.py:function") from error


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Look for imports in a folder first, and afterwards forget what was imported from it."""
    folder = folder.resolve()
    search, before = list(sys.path), set(sys.modules)
    root = Path(robustkpca.__file__).resolve().parent.parent
    # in a checkout, our own attacks/ must not stand in for the user's
    hidden = {root} if not (root / "robustkpca" / "attacks").is_dir() else set()
    sys.path[:] = [str(folder), *(entry for entry in search if Path(entry).resolve() not in hidden)]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = search
        for name in set(sys.modules) - before:
            top = name.partition(".")[0]
            ours = top == "robustkpca" or top.startswith(_PREFIX)
            if not ours and top not in before and _lies_in(sys.modules[name], folder):
                del sys.modules[name]


def _lies_in(module: ModuleType, folder: Path) -> bool:
    places = [
        Path(place).resolve()
        for place in (getattr(module, "__file__", None), *getattr(module, "__path__", []))
        if place
    ]
    return any(folder in place.parents and "site-packages" not in place.parts for place in places)


def _executed(path: Path, reference: str) -> ModuleType:
    """Run a file under a module name of its own; the bytes are compiled here, so no stale bytecode can stand in."""
    source = _read(path)
    module = ModuleType(f"{_PREFIX}{sha256(str(path.resolve()).encode() + source).hexdigest()[:16]}")
    module.__file__ = str(path.resolve())
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    with _reported(reference, path):
        exec(compile(source, module.__file__, "exec"), vars(module))
    return module


def _called(thing: Any, reference: str, path: Path, overrides: dict[str, Any]) -> Any:
    if isinstance(thing, nn.Module):
        if overrides:
            raise BadValue(f"{reference} is a module already and takes no arguments; got {', '.join(overrides)}")
        return thing
    if not callable(thing):
        raise BadValue(f"{reference} is a {type(thing).__name__}; expected a function, a class or a torch.nn.Module")
    _check_arguments(thing, reference, overrides)
    with _reported(reference, path):
        return thing(**overrides)


def _check_arguments(function: Callable[..., Any], reference: str, overrides: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    taken = signature.parameters.values()
    if not any(one.kind is one.VAR_KEYWORD for one in taken):
        for name in overrides:
            if name not in signature.parameters:
                raise unknown(f"argument of {reference}", name, signature.parameters)
    try:
        signature.bind(**overrides)
    except TypeError as error:
        raise BadValue(f"{reference}{signature}: {error}") from error


@contextmanager
def _reported(reference: str, path: Path) -> Iterator[None]:
    """Turn an error of the user's code into one line that says where in the file it was."""
    try:
        yield
    except (Exception, SystemExit) as error:  # a user's file may fail in any way; the cause stays attached
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path.resolve())
        ]
        line = error.lineno if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
        where = f" in line {line}" if line else ""
        text = " ".join(str(error).split())[:300]
        raise Unusable(f"{reference} raised {type(error).__name__}{where}: {text}") from error
