"""Several threads run a switch's frames: which programs can have them, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from conformance.case import PROGRAMS
from p4reduce_runtime import pipeline_folders
from p4reduce_switch.datapath import Reason
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.program import TargetOptions
from p4reduce_switch.program.ir.sharing import can_share
from p4reduce_switch.program.load import load_program
from p4reduce_switch.switch import Switch, Watch
from rigs.limits import LIMIT_S

CONFIG = (pipeline_folders.find("default") / pipeline_folders.PROGRAM).read_bytes()


def test_programs_whose_frames_need_their_order_or_other_cells_are_for_one_thread() -> None:
    names = ("indirect_meter", "log_messages", "controls_twice", "register_places", "state")
    two = TargetOptions(threads=2)
    found = [can_share(load_program((PROGRAMS / f"{name}.json").read_bytes(), two)) for name in names]
    assert found == [True, False, False, False, False]
    assert can_share(load_program(CONFIG, two)) and not can_share(load_program(CONFIG, TargetOptions()))


@pytest.fixture
def shared() -> Iterator[Switch]:
    """A switch of two threads, without a program."""
    switch = Switch(target=TargetOptions(threads=2))
    switch.add_ports(UdpUnderlay(("127.0.0.1", 0), threads=2))
    switch.prepare()
    yield switch
    switch.close()


def test_nothing_but_stop_wakes_a_helper(shared: Switch) -> None:
    """It would leave what woke it to the main loop, and keep that from the lock."""
    assert shared._loop is not None
    shared._share()
    shared.wake()
    found: list[Reason] = []
    helper = threading.Thread(
        target=lambda loop: found.append(loop.help_once(shared.lock.shared, 1)), args=(shared._loop.helpers[0],)
    )
    helper.start()
    helper.join(0.1)
    assert not found
    shared.stop()
    helper.join(LIMIT_S)
    assert found == [Reason.WOKEN]


@pytest.mark.parametrize("part", ["main loop", "helper"])
def test_an_error_in_one_thread_ends_all_and_the_switch_with_it(
    shared: Switch, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Reason:
        raise RuntimeError("it failed")

    assert shared._loop is not None
    if part == "main loop":
        monkeypatch.setattr(shared, "_serve", fail)
    else:
        monkeypatch.setattr(shared._loop.helpers[0], "help_once", fail)
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="it failed"):
        shared.run()
    assert threading.active_count() == before


def test_a_helper_s_digest_is_collected_when_a_trace_begins(shared: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    shared.install(shared.load(CONFIG))
    shared.watch(Watch(lambda trace: None))
    assert shared._loop is not None and shared.program is not None
    collected: list[int] = []
    monkeypatch.setattr(shared._loop.helpers[0], "help_once", lambda *_: shared.stop() or Reason.EVENT)
    monkeypatch.setattr(shared.program, "collect", collected.append)
    shared._help(shared._loop.helpers[0], 1)
    assert collected == [1]
