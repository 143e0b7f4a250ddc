"""The kernels that `collective.py` calls; a module of its own, so that they are compiled when they are needed first."""

from __future__ import annotations

from p4reduce.protocol import contribute as _contribute
from p4reduce.protocol import receive as _receive
from p4reduce.protocol import recovery
from p4reduce_runtime.kernels import direct

begin = direct(recovery.begin)
contribute = direct(_contribute.contribute)
on_loss_detection_timeout = direct(recovery.on_loss_detection_timeout)
receive = direct(_receive.receive)
