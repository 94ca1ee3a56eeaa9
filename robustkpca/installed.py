"""What pip says that it installed, and whether the files are still those."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import new
from importlib.metadata import PackageNotFoundError, distribution


@dataclass(frozen=True)
class Damage:
    """A package whose files are no longer those that pip wrote.

    Args:
        package: Its name on the package index.
        version: The version that pip believes in.
        files: What is missing or different, as RECORD names it, sorted.
        recorded: How many files RECORD has a hash of.
    """

    package: str
    version: str
    files: tuple[str, ...]
    recorded: int

    @property
    def mend(self) -> str:
        """The command that writes the files anew, and touches no other package."""
        return f"pip install --force-reinstall --no-deps {self.package}=={self.version}"

    def __str__(self) -> str:
        return (
            f"package {self.package} {self.version} is damaged: {len(self.files)} of {self.recorded} files are not those "
            f"that pip installed, such as {self.files[0]}; mend it with '{self.mend}'"
        )


@cache
def installed(package: str) -> str:
    """Return the version of a package, empty where it is not installed."""
    try:
        return distribution(package).version
    except PackageNotFoundError:
        return ""


def damage(package: str) -> Damage | None:
    """Compare the files of a package with the hashes of its RECORD.

    Two packages may own files of one name; pip then keeps those of the last one, and says nothing.

    Args:
        package: Its name on the package index.

    Returns:
        ``None`` where everything is as pip wrote it, or the package is not installed.
    """
    try:
        found = distribution(package)
    except PackageNotFoundError:
        return None
    recorded = [path for path in found.files or () if path.hash is not None]
    wrong = []
    for path in recorded:
        assert path.hash is not None
        try:
            digest = new(path.hash.mode, path.read_binary()).digest()
        except OSError:
            digest = b""
        if urlsafe_b64encode(digest).rstrip(b"=").decode() != path.hash.value:
            wrong.append(str(path))
    return Damage(package, found.version, tuple(sorted(wrong)), len(recorded)) if wrong else None
