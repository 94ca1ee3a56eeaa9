"""Which workers ``--workers`` and ``--device`` ask for."""

from __future__ import annotations

from robustkpca.calls import Call
from robustkpca.errors import BadValue
from robustkpca.workers import Crew


def crew_of(text: str, device: str) -> Crew | None:
    """Return the crew of ``--workers`` and ``--device``; ``None`` where this process does the work itself.

    Args:
        text: ``local``; ``local:2`` for two processes; ``ray`` or ``ray:ADDRESS``; or
            ``ray(address=...,workers=8,cpus=2,gpus=1)``.
        device: One device for all workers; or several, separated by commas, with a process for each; or ``all``.

    Raises:
        BadValue: If the text has another form.
        Unusable: If Ray is not installed, or not to be reached.
    """
    devices = devices_of(device)
    name, colon, rest = text.strip().partition(":")
    if name == "local":
        count = len(devices)
        if colon:
            if not rest.isdigit() or not 1 <= int(rest) <= 1024:
                raise BadValue(f"--workers {text!r}: expected a number of processes from 1 to 1024, such as local:2")
            count = int(rest)
        if not colon and count == 1:
            return None
        from robustkpca.local_crew import LocalCrew

        return LocalCrew(count, devices)
    if text.startswith("ray"):
        if len(devices) > 1:
            raise BadValue(f"--device {device!r}: Ray gives each worker its own; expected one device, such as cuda")
        from robustkpca.ray_crew import RayCrew

        call = Call("ray", {"address": rest}) if name == "ray" and colon else Call.parse(text)
        if call.name == "ray":
            return RayCrew.of(call, devices[0])
    raise BadValue(
        f"--workers {text!r}: expected local, local:N, ray, ray:ADDRESS or ray(address=...,workers=...,cpus=...,gpus=...)"
    )


def devices_of(text: str) -> list[str]:
    """Return the devices of ``--device``: one, several with commas, or ``all`` GPUs of this machine.

    Raises:
        BadValue: If a part is empty, or ``all`` finds no GPU.
    """
    if text.strip() != "all":
        devices = [part.strip() for part in text.split(",")]
        if not all(devices):
            raise BadValue(f"--device {text!r}: expected devices such as cuda:0,cuda:1")
        return devices
    import torch

    count = torch.cuda.device_count()
    if not count:
        raise BadValue("--device all: torch finds no GPU here; expected at least one, or --device cpu")
    return [f"cuda:{index}" for index in range(count)]
