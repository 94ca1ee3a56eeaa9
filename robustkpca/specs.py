"""What exactly was evaluated: models and data sets as values with a fingerprint."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from robustkpca.preprocessing import Preprocessing


def fingerprint(identity: Any) -> str:
    """Return the sha256 of a value made of plain containers, numbers and texts, as 64 hexadecimal digits."""
    return sha256(json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def file_digest(path: str | os.PathLike[str]) -> str:
    """Return the sha256 of a file, as 64 hexadecimal digits.

    Raises:
        OSError: If the file cannot be read.
    """
    digest = sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def slug(text: str) -> str:
    """Return a short form of a text that is safe as a file name everywhere."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-").lower()[:48] or "unnamed"


@dataclass(frozen=True)
class ModelSpec:
    """One model as evaluated: architecture, weights, preprocessing and precision.

    Args:
        name: Canonical text of the architecture with its arguments, such as ``rpc_symvit_tiny(iterations=4)``.
        weights: sha256 over names, shapes, dtypes and bytes of the state, wherever it came from.
        preprocessing: What happens between file and network.
        dtype: Precision of the forward and backward passes.
        code: Where the architecture comes from: ``package==version``, or the sha256 of the user's file.
        checkpoint: sha256 of the checkpoint file, empty for initial weights. Recorded, not part of the identity.
        checkpoint_key: Which entry of the checkpoint held the weights. Recorded, not part of the identity.
        label: The name with only the arguments that were given, for tables. Not part of the identity.
    """

    name: str
    weights: str
    preprocessing: Preprocessing
    dtype: str = "float32"
    code: str = ""
    checkpoint: str = ""
    checkpoint_key: str = ""
    label: str = ""

    @property
    def id(self) -> str:
        """Name and fingerprint; another set of weights, precision or preprocessing is another id."""
        identity = [self.name, self.weights, str(self.preprocessing), self.dtype, self.code]
        return f"{slug(self.name.partition('(')[0])}-{fingerprint(identity)[:12]}"

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as plain values, for a header."""
        return asdict(self) | {"preprocessing": str(self.preprocessing), "id": self.id}


@dataclass(frozen=True)
class DataSpec:
    """One data set as found on disk.

    Args:
        name: A short name for tables.
        layout: How it was recognised, such as ``imagenet-folder`` or ``arrays``.
        size: Number of samples.
        classes: Number of classes of the label space, also when only some of them occur.
        digest: sha256 over ids, labels and contents.
        digest_of: What the digest covers: ``contents``, or ``names and sizes`` for sets above 1 GiB.
        path: Where it lies. Recorded, not part of the identity.
    """

    name: str
    layout: str
    size: int
    classes: int
    digest: str
    digest_of: str = "contents"
    path: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        """Name and fingerprint; a changed data set is another id."""
        return f"{slug(self.name)}-{fingerprint([self.layout, self.size, self.classes, self.digest])[:12]}"

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as plain values, for a header."""
        return asdict(self) | {"id": self.id}
