"""The companion gloo groups of a process group: its backend of a device, and their options."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from p4reduce.launch.addresses import INTERFACE_VARIABLE

PlainGloo: Any = vars(dist)["ProcessGroupGloo"]


class Gloo(PlainGloo):  # type: ignore[misc]
    """The group's backend of a device, which FSDP2 asks for memory."""

    group: weakref.ref[Any]
    """The group, which has this: with a strong reference nothing would free either, and the store."""

    def _set_default_timeout(self, timeout: timedelta) -> None:
        """Set the group's time limit; torch before 2.14 calls it for each backend of the group."""
        super()._set_default_timeout(timeout)
        if (group := self.group()) is not None:
            group._set_timeout_of_others(timeout)

    def get_reconfigure_handle(self) -> Any:
        return self._of_group("get_reconfigure_handle")

    def reconfigure(self, opts: Any) -> Any:
        return self._of_group("reconfigure", opts)

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: Any = "cpu") -> Any:
        return self._of_group("allocate_tensor", size, dtype=dtype, device=device)

    def _of_group(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        group = self.group()
        assert group is not None
        return getattr(group, name)(*arguments, **keywords)


def gloo_options(address: str, timeout: timedelta, devices: Sequence[Any] = ()) -> Any:
    """Return the options of a gloo group with these devices, or at an address, "" where gloo finds it."""
    options, names = PlainGloo._Options(), os.environ.get(INTERFACE_VARIABLE, "")
    if address:
        devices = [PlainGloo.create_device(hostname=address)]
    devices = devices or [PlainGloo.create_device(interface=name) for name in names.split(",") if name]
    options._devices = [*(devices or [PlainGloo.create_default_device()])]
    options._timeout, options._threads = timeout, 2 * len(options._devices)
    return options
