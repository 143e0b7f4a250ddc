"""What the tests of both houses share: those of p4reduce (tests/) and of the embedded switch (softswitch/tests/)."""

from __future__ import annotations

import importlib.util
import os

import msgspec

from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.program.load import DEFAULT_TARGET
from rigs.faults import pytest_report_collectionfinish  # noqa: F401 (hook)
from rigs.process_marker import pytest_collection_modifyitems, pytest_runtest_call, pytest_runtest_setup  # noqa: F401 (hooks)
from rigs.skips import pytest_terminal_summary  # noqa: F401 (hook)

if importlib.util.find_spec("hypothesis") is not None:  # the environment of `make frameworks` has none
    from hypothesis import HealthCheck, settings

    settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("tests")  # no test depends on the machine's speed, or on chance

if THREADS := int(os.environ.get("P4REDUCE_SWITCH_THREADS", "0")):  # `p4reduce switch run` reads it too
    msgspec.structs.force_setattr(DEFAULT_TARGET, "threads", THREADS)
    UdpUnderlay.__init__.__kwdefaults__["threads"] = THREADS
