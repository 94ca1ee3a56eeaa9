"""Files that nobody should load: each is refused in one line, and nothing in it runs."""

from __future__ import annotations

import argparse
import builtins
import functools
import gzip
import importlib
import io
import operator
import os
import pickle
import runpy
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors.torch
import torch
from torch import nn

from robustkpca.errors import BadValue, UserError
from robustkpca.models.checkpoints import read_checkpoint

WEIGHTS = {"layer.weight": torch.arange(6.0).reshape(2, 3), "layer.bias": torch.zeros(2)}


class Gadget:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, state: Any = None) -> None:
        self.call = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.call


@pytest.fixture
def sentinel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Fails the test if anything has run: no gadget may create this file, no module may be imported."""
    path = tmp_path / "it-ran"
    trap = tmp_path / "trap"
    trap.mkdir()
    fire = f"open({str(path)!r}, 'w').close()"
    (trap / "hostile_module_of_a_checkpoint.py").write_text(
        f"{fire}\nclass Thing:\n    def __setstate__(self, s): {fire}\n"
    )
    monkeypatch.syspath_prepend(str(trap))
    before = set(sys.modules)
    yield path
    assert not path.exists()
    assert not any("hostile_module" in name for name in set(sys.modules) - before)


def refusal(path: Path, **arguments: Any) -> str:
    """Return the message of the refusal, which must be one printable line that names the file."""
    with pytest.raises(UserError) as caught:
        read_checkpoint(path, **arguments)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1000
    assert path.name in message
    return message


def archive(path: Path, pickled: bytes, entries: dict[str, bytes] | None = None) -> Path:
    """Write a file as torch.save does, around a given pickle."""
    with zipfile.ZipFile(path, "w") as file:
        files = {"data.pkl": pickled, "byteorder": b"little", "version": b"3\n"} | (entries or {})
        for name, content in files.items():
            file.writestr(f"archive/{name}", content)
    return path


def changed_archive(path: Path, change: Callable[[bytes], bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    """Write weights with torch.save, then rewrite the archive around a changed pickle."""
    buffer = io.BytesIO()
    torch.save(WEIGHTS, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w", compression) as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, change(content) if name.endswith("/data.pkl") else content)
    return path


CALLS: dict[str, Callable[[Path], Gadget]] = {
    "os.system": lambda s: Gadget(os.system, f"touch {s}"),
    "os.popen": lambda s: Gadget(os.popen, f"touch {s}"),
    "os.mkdir": lambda s: Gadget(os.mkdir, str(s)),
    "eval": lambda s: Gadget(eval, f"open({str(s)!r}, 'w').close()"),
    "exec": lambda s: Gadget(exec, f"open({str(s)!r}, 'w').close()"),
    "open": lambda s: Gadget(open, str(s), "w"),
    "subprocess.call": lambda s: Gadget(subprocess.call, ["touch", str(s)]),
    "subprocess.Popen": lambda s: Gadget(subprocess.Popen, ["touch", str(s)]),
    "import": lambda s: Gadget(importlib.import_module, "hostile_module_of_a_checkpoint"),
    "__import__": lambda s: Gadget(builtins.__import__, "hostile_module_of_a_checkpoint"),
    "runpy": lambda s: Gadget(runpy.run_path, str(s.parent / "trap" / "hostile_module_of_a_checkpoint.py")),
    "getattr": lambda s: Gadget(Gadget, Gadget(getattr, s, "touch")),
    "partial": lambda s: Gadget(functools.partial, os.system, f"touch {s}"),
    "methodcaller": lambda s: Gadget(operator.methodcaller, "touch"),
    "torch.load": lambda s: Gadget(torch.load, str(s)),
    "inner-pickle": lambda s: Gadget(pickle.loads, pickle.dumps(Gadget(os.system, f"touch {s}"))),
    "state": lambda s: Gadget(argparse.ArgumentParser, state={"exit": Gadget(os.system, f"touch {s}")}),
    "exception": lambda s: Gadget(OSError, Gadget(os.system, f"touch {s}")),
}
PLACES: dict[str, Callable[[Gadget], Any]] = {
    "alone": lambda gadget: gadget,
    "beside": lambda gadget: {"model": WEIGHTS, "args": gadget},
    "nested": lambda gadget: {"model": {**WEIGHTS, "layer.extra": gadget}},
    "namespace": lambda gadget: {"model": WEIGHTS, "args": argparse.Namespace(model="tiny", hook=gadget)},
    "list": lambda gadget: {"optimizer": {"param_groups": [gadget]}, "model": WEIGHTS},
    "key": lambda gadget: {"model": WEIGHTS, gadget: 1},
}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("call", CALLS)
def test_a_file_that_would_call_something_is_refused(call: str, zipped: bool, sentinel: Path, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"model": WEIGHTS, "extra": CALLS[call](sentinel)}, path, _use_new_zipfile_serialization=zipped)
    assert "would run code when opened" in refusal(path)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("place", PLACES)
def test_a_call_is_found_wherever_it_hides(place: str, zipped: bool, sentinel: Path, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    content = PLACES[place](Gadget(os.system, f"touch {sentinel}"))
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    message = refusal(path)
    assert f"{os.system.__module__}.system" in message
    assert "refused and not executed" in message
    assert "torch.save(model.state_dict(), FILE)" in message


def test_the_traps_of_these_tests_are_live(tmp_path: Path) -> None:
    for call in ("os.system", "eval", "exec", "subprocess.call", "inner-pickle", "exception"):
        path = tmp_path / call
        pickle.loads(pickle.dumps(CALLS[call](path)))
        assert path.exists(), call


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


FORBIDDEN: dict[str, tuple[bytes, str]] = {
    "import of a module": (b"\x80\x02chostile_module_of_a_checkpoint\nThing\n.", "Thing"),
    "object and state": (b"\x80\x02chostile_module_of_a_checkpoint\nThing\n)\x81}b.", "Thing"),
    "INST": (b"\x80\x02(ihostile_module_of_a_checkpoint\nThing\n.", "Thing"),
    "OBJ": (b"\x80\x02(chostile_module_of_a_checkpoint\nThing\no.", "Thing"),
    "Python 2 name": (b"\x80\x02c__builtin__\neval\n" + text("1") + b"\x85R.", "builtins.eval"),
    "path through torch": (b"\x80\x02ctorch\nserialization.os.system\n.", "torch.serialization.os.system"),
    "path through a rebuild": (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2.__globals__\n.", "__globals__"),
    "name of a built-in method": (b"\x80\x02ccollections\nOrderedDict.__reduce__\n.", "__reduce__"),
    "nt": (b"\x80\x02cnt\nsystem\n" + text("x") + b"\x85R.", "nt.system"),
    "extension registry": (b"\x80\x02\x82\x01.", "copyreg.extension.1"),
    "protocol 4": (b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x8c\x01x\x85R.", "os.system"),
    "protocol 4 by memo": (
        b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x8c\x01x0h\x00h\x01\x93\x8c\x01x\x85R.",
        "os.system",
    ),
}


@pytest.mark.parametrize(("pickled", "named"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "bare"])
def test_hand_written_opcodes_are_refused(
    pickled: bytes, named: str, zipped: bool, sentinel: Path, tmp_path: Path
) -> None:
    path = tmp_path / "weights.pth"
    archive(path, pickled) if zipped else path.write_bytes(pickled)
    assert named in refusal(path)


NONSENSE: dict[str, bytes] = {
    "text protocol": b"cposix\nsystem\n(S'touch it-ran'\ntR.",
    "persistent text": b"\x80\x02Pfile:///etc/passwd\n.",
    "persistent object": b"\x80\x02" + text("anything") + b"Q.",
    "persistent module": b"\x80\x02(" + text("module") + b"NNNtQ.",
    "storage outside": b"\x80\x02("
    + text("storage")
    + b"ctorch\nFloatStorage\n"
    + text("../../x")
    + text("cpu")
    + b"K\x04tQ.",
    "stack underflow": b"\x80\x02R.",
    "memo of nothing": b"\x80\x02h\x07.",
    "endless text": b"\x80\x02X\xff\xff\xff\xffabc.",
    "negative": b"\x80\x02J\xff\xff\xff\xff}s.",
    "number called": b"\x80\x02K\x01K\x02\x85R.",
    "state of a number": b"\x80\x02K\x01}b.",
    "inert as function of itself": b"\x80\x02cargparse\nNamespace\n(K\x01K\x02tR}b.",
    "size of nonsense": b"\x80\x02ctorch\nSize\n" + text("abc") + b"\x85R.",
    "no opcode": b"\x80\x02\xff\xff.",
    "no end": b"\x80\x02}",
    "nothing": b"",
}


@pytest.mark.parametrize("pickled", NONSENSE.values(), ids=NONSENSE.keys())
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "bare"])
def test_nonsense_opcodes_are_refused(
    pickled: bytes, zipped: bool, sentinel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "weights.pth"
    archive(path, pickled) if zipped else path.write_bytes(pickled)
    refusal(path)


def test_the_environment_cannot_open_the_lock(sentinel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save({"model": WEIGHTS, "x": Gadget(os.system, f"touch {sentinel}")}, tmp_path / "weights.pth")
    refusal(tmp_path / "weights.pth")


def test_names_allowed_by_the_process_stay_refused(sentinel: Path, tmp_path: Path) -> None:
    torch.save({"model": WEIGHTS, "x": Gadget(subprocess.call, ["touch", str(sentinel)])}, tmp_path / "weights.pth")
    with torch.serialization.safe_globals([subprocess.call]):
        refusal(tmp_path / "weights.pth")


def test_reading_leaves_the_list_of_torch_as_it_was(tmp_path: Path) -> None:
    # torch keeps a set and hands it out as a list: its order is not a fact
    before = set(torch.serialization.get_safe_globals())
    torch.save({"model": WEIGHTS, "args": argparse.Namespace()}, tmp_path / "weights.pth")
    read_checkpoint(tmp_path / "weights.pth")
    assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_pickled_module_is_refused_with_the_way_to_convert_it(zipped: bool, tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    message = refusal(tmp_path / "model.pt")
    assert "holds a whole pickled module, not weights alone (names torch.nn.modules.linear.Linear)" in message
    assert "torch.save(model.state_dict(), FILE)" in message


def test_a_torchscript_archive_is_refused(tmp_path: Path) -> None:
    pickled = b"\x80\x02}."
    entries = {"constants.pkl": pickled, "code/__torch__.py": b"pass"}
    assert "is a TorchScript archive" in refusal(archive(tmp_path / "model.pt", pickled, entries))


def test_text_of_a_pickle_cannot_break_the_line(sentinel: Path, tmp_path: Path) -> None:
    name = "a\nb\x1b[31m" + "c" * 1000
    pickled = b"\x80\x04" + text(name) + text("evil") + b"\x93."
    assert "a\\nb\\x1b[31mccc" in refusal(archive(tmp_path / "weights.pth", pickled))


def test_a_missing_file_a_folder_and_a_pipe_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, expected in (("missing.pth", "no such file"), ("folder", "is a folder"), ("pipe", "not a regular file")):
        with pytest.raises(BadValue, match=expected):
            read_checkpoint(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty (0 bytes)"),
        (b"<!DOCTYPE html><html>404</html>", "is an HTML page, probably a failed download"),
        (b"\n  <html lang='en'>Sign in</html>", "is an HTML page, probably a failed download"),
        (b"<?xml version='1.0'?><Error>AccessDenied</Error>", "is an XML page, probably a failed download"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull"),
        (b"Not found. Please sign in to download this file.", "is of no known format"),
        (b"{'error': 'quota exceeded'}", "is of no known format"),
        (b"\x00" * 100, "is of no known format"),
        (gzip.compress(b"weights", mtime=0), "gzip"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"PK\x05\x06" + b"\0" * 18, "empty zip"),
        (pickle.dumps({"layer.weight": [1.0]}, protocol=2), "is a pickle, but not in the form that torch.save writes"),
    ],
)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_other_content_is_named(content: bytes, expected: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    if suffix == ".safetensors":
        expected = expected.replace("is of no known format", "is not a safetensors file")
    assert expected in refusal(path)


def test_a_tar_archive_is_named(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "weights.pth.tar", "w") as file:
        file.addfile(tarfile.TarInfo("storages"))
    assert "is a tar archive" in refusal(tmp_path / "weights.pth.tar")


def test_a_numpy_array_of_objects_is_refused(sentinel: Path, tmp_path: Path) -> None:
    with (tmp_path / "weights.pt").open("wb") as file:
        numpy.save(file, numpy.array([Gadget(os.system, f"touch {sentinel}")], dtype=object), allow_pickle=True)
    assert "is a numpy array" in refusal(tmp_path / "weights.pt")


def test_a_zip_archive_around_a_checkpoint_lists_what_it_holds(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "weights.pt", "w") as file:
        file.writestr("release/deit.pth", b"x")
    assert "it holds release/deit.pth" in refusal(tmp_path / "weights.pt")


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("kept", [0.99, 0.5, 0.2])
def test_a_truncated_file_is_called_so_with_its_size_and_digest(zipped: bool, kept: float, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"layer.weight": torch.zeros(64, 64)}, path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()[: int(kept * path.stat().st_size)]
    path.write_bytes(content)
    message = refusal(path)
    assert "is truncated" in message
    assert f"({len(content)} bytes, sha256 {sha256(content).hexdigest()})" in message


def test_a_pickle_that_ends_early_is_called_truncated(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(WEIGHTS, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:150])
    assert "is truncated" in refusal(path)


def test_a_storage_shorter_than_the_pickle_says_is_damage(tmp_path: Path) -> None:
    """Memory mapping would hand out the bytes that happen to follow."""
    path = changed_archive(tmp_path / "weights.pth", lambda pickled: pickled.replace(b"K\x06t", b"K\x20t", 1))
    assert "is damaged, record size (24 bytes) does not match" in refusal(path)


def test_a_tensor_larger_than_its_storage_is_damage(tmp_path: Path) -> None:
    path = changed_archive(
        tmp_path / "weights.pth", lambda pickled: pickled.replace(b"K\x02K\x03\x86", b"K\x20K\x30\x86")
    )
    assert "is damaged" in refusal(path)


def test_a_repeated_entry_of_an_archive_is_damage(tmp_path: Path) -> None:
    path = archive(tmp_path / "weights.pth", b"\x80\x02}.")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as file:
        file.writestr("archive/data.pkl", b"\x80\x02cposix\nsystem\n.")
    assert "occurs twice" in refusal(path)


def test_a_damaged_directory_of_an_archive_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(WEIGHTS, path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"PK\x01\x02", b"PK\x01\x03"))
    assert "is a damaged zip archive" in refusal(path)


def test_a_compressed_archive_gives_the_same_weights(tmp_path: Path) -> None:
    """Memory mapping would return the compressed bytes as weights."""
    path = changed_archive(tmp_path / "weights.pth", lambda pickled: pickled, zipfile.ZIP_DEFLATED)
    torch.testing.assert_close(read_checkpoint(path).state, WEIGHTS, rtol=0, atol=0)


def test_a_later_pickle_protocol_says_how_to_save(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "weights.pth", pickle_protocol=4)
    assert "save it again with torch.save and its default pickle_protocol" in refusal(tmp_path / "weights.pth")


def header(text: str, data: bytes = b"\0" * 8) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode() + data


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            header(
                '{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}'
            ),
            "damaged",
        ),
        (header('{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'), "truncated"),
        (header('{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}'), "damaged"),
        (header('{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,8]}}'), "damaged"),
        (header('{"a":{"dtype":"F32","shape":[18446744073709551615,4],"data_offsets":[0,8]}}'), "damaged"),
        (header('{"a":{"dtype":"X99","shape":[2],"data_offsets":[0,8]}}'), "damaged"),
        (header('{"a":7}'), "damaged"),
        (header("{" * 5000), "damaged"),
        (header('{"a":' * 5000), "damaged"),
        (struct.pack("<Q", 1 << 20) + b"{}", "truncated"),
        (struct.pack("<Q", (1 << 63) + 5) + b"{}", "is not a safetensors file"),
        (struct.pack("<Q", 200_000_000) + b"{}", "longer than 100 MB"),
        (header("{}", b""), "holds no tensors"),
    ],
)
def test_a_wrong_safetensors_header_is_refused(content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    assert expected in refusal(path)


def test_a_truncated_safetensors_file_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(WEIGHTS, path)
    content = path.read_bytes()[:-5]
    path.write_bytes(content)
    message = refusal(path)
    assert "is truncated" in message
    assert f"({len(content)} bytes, sha256 {sha256(content).hexdigest()})" in message
