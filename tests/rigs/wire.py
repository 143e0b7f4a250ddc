"""The wire under one name, for tests that use much of it."""

# ruff: noqa: F403
from p4reduce_contracts.wire.checksum import *
from p4reduce_contracts.wire.frames import *
from p4reduce_contracts.wire.geometry import *
from p4reduce_contracts.wire.hello import *
from p4reduce_contracts.wire.numbers import *
from p4reduce_runtime.underlay import *
