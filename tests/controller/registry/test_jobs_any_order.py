"""The registry under any order of events: what must always hold."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_contracts.jobs.errors import JobExistsError, MemberResetError, PlaceTakenError, SwitchFullError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_controller.registry.hello import Hello
from p4reduce_controller.registry.job import Job
from p4reduce_controller.registry.registry import Registry
from rigs.registry import MemoryStore, place


class AnyOrder(RuleBasedStateMachine):
    """Any order of events, on a switch so small that jobs fight for slots."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.nonces: list[int] = []
        self.told: dict[int, str] = {}  # nonces that were told of a reset
        numbers = itertools.count(1)

        self.draw_nonce = lambda: next(numbers)
        self.store = MemoryStore()
        self.registry = Registry(SwitchGeometry(4, 8, 16), self.store, 10.0, self.draw_nonce)

    def some_job(self, number: int) -> Job:
        jobs = self.registry.jobs()
        return jobs[number % len(jobs)]

    @rule(number=st.integers(0, 3), world_size=st.integers(1, 3), slots=st.none() | st.integers(1, 9))
    def create(self, number: int, world_size: int, slots: int | None) -> None:
        with contextlib.suppress(JobExistsError, SwitchFullError):
            self.registry.create(f"job{number}", world_size, slots)

    @precondition(lambda self: self.registry.jobs())
    @rule(number=st.integers(0, 3))
    def remove(self, number: int) -> None:
        self.registry.remove(self.some_job(number).name)

    @precondition(lambda self: self.registry.jobs())
    @rule(number=st.integers(0, 3), rank=st.integers(0, 2), again=st.booleans())
    def join(self, number: int, rank: int, again: bool) -> None:
        job = self.some_job(number)
        held = job.members.get(rank % job.world_size)
        before = (job.state, job.epoch, dict(job.members))
        try:
            member = self.registry.join(
                job.name,
                rank % job.world_size,
                job.world_size,
                self.now,
                former=held.nonce if held is not None and again else 0,
            )
        except PlaceTakenError:
            assert held is not None and not again
            assert (job.state, job.epoch, job.members) == before, "what was refused had no effect"
            return
        assert held is None or again
        assert member.nonce not in self.nonces
        self.nonces.append(member.nonce)

    @precondition(lambda self: self.nonces)
    @rule(pick=st.integers(0, 99), where=st.integers(1, 4))
    def hello(self, pick: int, where: int) -> None:
        nonce = self.nonces[-1 - pick % len(self.nonces)]
        for job in self.registry.jobs():
            self.registry.hello(Hello(job.id, nonce, place(where)), self.now)

    @precondition(lambda self: self.registry.jobs())
    @rule(number=st.integers(0, 3))
    def all_join_and_say_hello(self, number: int) -> None:
        job = self.some_job(number)
        ranks = range(job.world_size)
        for member in list(job.members.values()):
            self.registry.leave(member.nonce)
        members = [self.registry.join(job.name, rank, job.world_size, self.now) for rank in ranks]
        for member in members:
            self.nonces.append(member.nonce)
            self.registry.hello(Hello(job.id, member.nonce, place(member.rank)), self.now)
        assert job.grants

    @precondition(lambda self: self.registry.grants())
    @rule(pick=st.integers(0, 99), works=st.booleans())
    def switch_answers(self, pick: int, works: bool) -> None:
        grants = list(self.registry.grants().values())
        grant = grants[pick % len(grants)]
        if works:
            self.registry.installed(grant, self.now)
        else:
            self.registry.install_failed(grant, "refused")

    @precondition(lambda self: self.nonces)
    @rule(pick=st.integers(0, 99), event=st.sampled_from(["leave", "heartbeat", "wait", "wait and go"]))
    def member_acts(self, pick: int, event: str) -> None:
        nonce = self.nonces[-1 - pick % len(self.nonces)]
        if event == "leave":
            self.registry.leave(nonce)
        elif event == "heartbeat":
            reason = self.registry.heartbeat(nonce, self.now)
            assert self.told.get(nonce, reason) == reason, "a reset stays a reset"
            if reason:
                self.told[nonce] = reason
        elif not self.registry.heartbeat(nonce, self.now):
            self.registry.wait_started(nonce)
            self.registry.wait_ended(nonce, self.now, caller_disconnected=event == "wait and go")

    @rule(seconds=st.floats(0, 12))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.registry.sweep(self.now)

    @rule()
    def switch_restarts(self) -> None:
        self.registry.switch_lost("the switch restarted")
        assert self.registry.grants() == {}

    @rule()
    def controller_restarts(self) -> None:
        before = {job.name: (job.id, job.slots, job.epoch) for job in self.registry.jobs()}
        members = {job.name: set(job.members) for job in self.registry.jobs()}
        self.registry = Registry(SwitchGeometry(4, 8, 16), self.store, 10.0, self.draw_nonce)
        self.registry.restore(self.store.jobs(), self.now)
        self.told.clear()  # a nonce that got the answer "reset" is an unknown one now
        assert {job.name: (job.id, job.slots, job.epoch) for job in self.registry.jobs()} == before
        assert {job.name: set(job.members) for job in self.registry.jobs()} == members

    @invariant()
    def slots_never_overlap(self) -> None:
        held = sorted(job.slots for job in self.registry.jobs())
        assert all(before.end <= after.base for before, after in itertools.pairwise(held))
        assert all(0 <= one.base < one.end <= 16 for one in held)
        assert self.registry.slots.free == 16 - sum(one.count for one in held)

    @invariant()
    def grants_are_whole_and_their_epochs_their_own(self) -> None:
        grants = self.registry.grants()
        assert len({grant.epoch for grant in grants.values()}) == len(grants)
        for job in self.registry.jobs():
            assert not job.active or bool(job.grants)
            if bool(job.grants):
                assert sorted(job.members) == list(range(job.world_size))
                assert tuple(child.address for child in job.grants[ONLY_SWITCH].children) == tuple(
                    job.members[rank].addresses[ONLY_SWITCH] for rank in range(job.world_size)
                )
                assert len({child.address for child in job.grants[ONLY_SWITCH].children}) == job.world_size
                assert job.grants[ONLY_SWITCH].slots == job.slots
            assert (job.epoch > 0) == job.active

    @invariant()
    def only_members_nonces_are_good(self) -> None:
        good = {member.nonce for job in self.registry.jobs() for member in job.members.values()}
        for nonce in self.nonces:
            try:
                self.registry.member(nonce)
                assert nonce in good
            except MemberResetError:
                assert nonce not in good


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestAnyOrder = pytest.mark.slow(AnyOrder.TestCase)
