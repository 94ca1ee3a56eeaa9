"""What a pickle would import, read from its opcodes without executing it, and loading of those that are harmless.

Two locks, one behind the other: our own short list of names, then the restricted unpickler of ``torch.load``. Neither
has a switch that turns it off.
"""

from __future__ import annotations

import pickletools
import re
import struct
import warnings
from collections.abc import Iterable
from pickle import UnpicklingError
from typing import Any, BinaryIO

import torch

MALFORMED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    UnpicklingError,
    ValueError,
    struct.error,
)
"""What torch's unpickler, a stack machine driven by the file, raises on bytes that nobody should have written."""

TENSORS = re.compile(
    r"collections\.(OrderedDict|Counter)|builtins\.(set|complex|bytearray)|_codecs\.encode"
    r"|torch\.(Size|Tensor|device|nn\.parameter\.Parameter)"
    r"|torch\.(cuda\.)?[A-Z]\w*Storage|torch\.storage\.(Untyped|Typed)Storage"
    r"|torch\.(float|bfloat|complex|u?int|bool|half|double|long|short)\w*"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|tensor_v3|parameter|parameter_with_state)"
    r"|torch\._tensor\._rebuild_from_type_v2"
)
"""Names that dense tensors and plain containers are made of, all known to torch's unpickler."""

INERT = (
    "argparse.Namespace",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    "numpy.dtype",
    "numpy.ndarray",
    *(f"pathlib.{name}" for name in ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")),
    *(f"pathlib._local.{name}" for name in ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")),
)
"""Names that training scripts leave beside the weights (arguments, a best accuracy). Each is read as an `Inert`."""


class Inert:
    """Stands where a checkpoint holds something that is not weights; it keeps nothing and does nothing."""

    def __new__(cls, *_: Any) -> Inert:
        """Ignore whatever the file passes."""
        return super().__new__(cls)

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        """Ignore whatever the file passes."""


def imported(stream: BinaryIO, count: int = 1) -> set[str]:
    """Return the dotted names that ``count`` consecutive pickles would import.

    Names are those in the opcodes. Protocol 4 puts them together on the stack, where they can be hidden: such a name is
    a best guess, for the message only, because torch's unpickler does not know those opcodes.

    Raises:
        ValueError: If the bytes are no complete pickle (and what else `MALFORMED` lists).
    """
    names: set[str] = set()
    for _ in range(count):
        texts: list[str] = ["?", "?"]
        memo: list[str] = []
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name in ("GLOBAL", "INST"):
                module, _, name = str(argument).partition(" ")
                names.add(f"{'builtins' if module == '__builtin__' else module}.{name}")
            elif opcode.name == "STACK_GLOBAL":
                names.add(".".join(texts[-2:]))
            elif opcode.name.startswith("EXT"):
                names.add(f"copyreg.extension.{argument}")
            elif opcode.name == "MEMOIZE":
                memo.append(texts[-1])
            elif opcode.name in ("BINGET", "LONG_BINGET") and isinstance(argument, int) and argument < len(memo):
                texts.append(memo[argument])
            elif isinstance(argument, str):
                texts.append(argument)
    return names


def foreign(names: Iterable[str]) -> list[str]:
    """Return those of the names that weights do not need."""
    return sorted(name for name in names if name not in INERT and not TENSORS.fullmatch(name))


def load(stream: BinaryIO) -> Any:
    """Read what ``torch.save`` wrote, into main memory, by torch's restricted unpickler.

    Memory mapping is left out on purpose: torch 2.14 then trusts the lengths that the pickle states and returns the raw
    bytes of a compressed archive as weights, and a file that is rewritten meanwhile changes weights already read.

    Raises:
        UnpicklingError: If a name is not allowed (and what else `MALFORMED` lists).
    """
    with warnings.catch_warnings(), torch.serialization.safe_globals([(Inert, name) for name in INERT]):
        warnings.simplefilter("ignore")  # about pickle protocols; what matters to the reader becomes an error
        return torch.load(stream, map_location="cpu", weights_only=True)
