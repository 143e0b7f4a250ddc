"""The job of a process group: rank 0 makes it, the others read its name in the group's store."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from p4reduce.communicator import Communicator
from p4reduce.errors import JoinError
from p4reduce.launch.launch import Launch, NoRoomError, Told, is_controller, share_memory, start
from p4reduce.launch.processes import Processes
from p4reduce.membership.join import Patience, join, load_all_kernels
from p4reduce.pytorch.backend.options import SUBGROUP_SLOTS, Options
from p4reduce.timeouts import tries
from p4reduce_runtime.environment import P4REDUCE_CONTROLLER, P4REDUCE_LAUNCH
from p4reduce_runtime.settings import ConfigError

if TYPE_CHECKING:
    from p4reduce_contracts.jobs.answers import JobInfo
    from p4reduce_runtime.security import Security

_launches: Final[list[Launch]] = []
"""What was started for groups of all ranks that are there; subgroups use that of the first one."""
_NOTHING_STARTED: Final = (
    "a new_group starts no switches where the group of all ranks has another backend: name a controller "
    '(P4REDUCE_CONTROLLER), or call init_process_group("p4reduce")'
)
_KEY: Final = "job"
"""The key in the store of the job's name."""
_WAY: Final = "way"
"""The key in the store of how the first rank that came finds a controller."""
_GRACE_S: Final = 10.0
"""Seconds that the other ranks wait longer for rank 0 than it for the controller: it then says what was missing."""


@dataclass
class GroupJob:
    """This rank's place in the job of a process group."""

    comm: Communicator
    launch: Launch | None = None
    """What this rank started for the group of all ranks."""
    _made: JobInfo | None = None
    """The job, on the rank that removes it."""
    _controller: str = ""
    _security: Security | None = None

    def close(self, *, wait: bool = True, goes_on: bool = False) -> None:
        """Leave the job, and remove it if this rank made it. Does not raise for a controller that is away.

        `wait`: as of `Communicator.close`. `goes_on`: whether the launch may serve the next members of the group.
        """
        from p4reduce_contracts.jobs.client import JobClient
        from p4reduce_contracts.jobs.errors import JobServiceError

        if self.launch is not None and not goes_on:
            self.launch.mute()
        self.comm.close(wait=wait)
        if self._made is not None:
            with (
                contextlib.suppress(JobServiceError),
                JobClient(self._controller, security=self._security, token=self._made.owner_token) as client,
            ):
                client.remove_job(self._made.name)


def join_job(  # noqa: PLR0917
    store: Any,
    rank: int,
    size: int,
    timeout_s: float,
    options: Options,
    processes: Processes | None = None,
    *,
    subgroup: bool,
    run: str = "",
    former: Launch | None = None,
    single_epoch: bool = False,
) -> GroupJob:
    """Make or find the group's job and join it, in `timeout_s` each; all ranks call it, with one name `run`.

    `former`: the launch of this rank before the group changed its members; it goes on, or ends. `single_epoch`: as of
    `create_job`.

    Where no controller is named and the job is none that exists, the group of all ranks starts one, or shares the
    memory of its host, as its subgroups then do (p4reduce/launch).
    Rank 0 waits for the controller, and for its connection to the switch.

    Raises JoinError, on all ranks within seconds where one of them cannot join, or where the store ends with its
    launcher; NoRoomError if the switch is full.
    """
    from p4reduce_contracts.jobs import DEFAULT_CONTROLLER

    named = options.controller or P4REDUCE_CONTROLLER.text()
    launch = None
    launches = not named and options.job is None and P4REDUCE_LAUNCH.read()
    _agree(store, rank, launches=launches)
    if launches:
        if not subgroup:
            launch = start(store, rank, size, timeout_s, processes, former)
            _launches.append(launch)
            if former in _launches:  # for subgroups this one is in its place
                _launches[_launches.index(former)] = _launches.pop()
        elif _launches:
            launch = _launches[0]
        elif rank == 0 and not is_controller(DEFAULT_CONTROLLER):
            store.set(_KEY, json.dumps({"error": _NOTHING_STARTED, "full": False}))
            raise JoinError(_NOTHING_STARTED)
    if launch is not None and launch.comm is not None:
        found = share_memory(Told(store, timeout_s, processes), rank, size) if subgroup else launch.comm
        if isinstance(found, str):
            raise NoRoomError(found)
        return GroupJob(found, None if subgroup else launch)
    controller, security = (launch.controller, launch.security) if launch else (named or DEFAULT_CONTROLLER, None)
    own, check = None if subgroup else launch, Told(store, timeout_s, processes).look
    try:
        name, token, made = options.job, options.token, None
        if name is None and rank == 0:
            to_do = f"make a job of {size} ranks at the controller {controller}"

            def create() -> JobInfo:
                patience = Patience(0, to_do, timeout_s, check)
                return _create(size, controller, security, patience, options.slots, subgroup, single_epoch)

            made = _make(store, to_do, create)
            name, token = made.name, made.member_token or None
        elif name is None:
            load_all_kernels()  # while rank 0 does
            name, token = _find(store, timeout_s, check)
        comm = join(
            name,
            rank=rank,
            world_size=size,
            controller=controller,
            security=security,
            token=token,
            timeout_s=timeout_s,
            collective_timeout_s=timeout_s,
            switch=options.switch,
            check=check,
            run=run,
        )
    except BaseException:
        end_launch(own)
        raise
    removed = None if single_epoch else made  # a job of one epoch ends with its last member
    return GroupJob(comm, own, removed, controller, security)


def _agree(store: Any, rank: int, *, launches: bool) -> None:
    """Raise JoinError, on all ranks, where some of them start what others do not wait for."""
    way = "names no controller" if launches else "names a controller or a job"
    first = store.compare_set(_WAY, "", f"rank {rank} {way}").decode()
    if not first.endswith(f" {way}"):
        text = f"{first}, and rank {rank} {way}: set {P4REDUCE_CONTROLLER} and {P4REDUCE_LAUNCH} alike on all ranks"
        raise JoinError(text)


def end_launch(launch: Launch | None) -> None:
    """End what this rank has started; all ranks have left the job. Idempotent."""
    if launch is not None:
        if launch in _launches:
            _launches.remove(launch)
        launch.close()


def _make(store: Any, to_do: str, create: Callable[[], JobInfo]) -> JobInfo:
    """Return the job that `create` makes; the store has what the others need of it, or why there is none."""
    from p4reduce_contracts.jobs.errors import JobServiceError, SwitchFullError

    try:
        load_all_kernels()  # before there is a job, which would hold slots meanwhile
        job = create()
    except (JobServiceError, ConfigError, JoinError) as error:
        text = str(error) if isinstance(error, JoinError) else f"rank 0 could not {to_do}: {error}"
        full = isinstance(error, SwitchFullError)
        store.set(_KEY, json.dumps({"error": text, "full": full}))
        raise (NoRoomError if full else JoinError)(text) from error
    store.set(_KEY, json.dumps({"job": job.name, "token": job.member_token}))
    return job


def _create(  # noqa: PLR0917
    size: int,
    controller: str,
    security: Security | None,
    patience: Patience,
    slots: int | None,
    subgroup: bool,
    single_epoch: bool,
) -> JobInfo:
    """Create the job, once the controller is there and connected to its switch."""
    from p4reduce_contracts.jobs.client import JobClient
    from p4reduce_contracts.jobs.errors import ControllerUnreachableError, SwitchAwayError, SwitchFullError

    with JobClient(controller, security=security) as client:
        longest_call_s = client.timeout_s
        while True:
            client.timeout_s = min(longest_call_s, patience.left_s)
            name = f"torch-{secrets.token_hex(6)}"  # a job whose answer was lost has no members, and ends
            try:
                if slots is None and subgroup:
                    slots = max(1, min(SUBGROUP_SLOTS, client.list_jobs().free_slots))
                return client.create_job(name, size, slots, ephemeral=True, single_epoch=single_epoch)
            except (ControllerUnreachableError, SwitchAwayError) as error:
                patience.pause(error)
            except SwitchFullError as error:  # the job of the members before may still be there
                if not single_epoch or subgroup:
                    raise
                patience.pause(error)


def _find(store: Any, timeout_s: float, check: Callable[[], None]) -> tuple[str, str | None]:
    """Return what `_make` told the others; rank 0 may take all of the time, and then says why."""
    for _ in tries(timeout_s + _GRACE_S):
        if store.check([_KEY]):
            break
        check()
    else:
        raise JoinError(f"rank 0 made no job in {timeout_s:g} s")
    said = json.loads(store.get(_KEY))
    if "error" in said:
        raise (NoRoomError if said["full"] else JoinError)(str(said["error"]))
    return str(said["job"]), said["token"] or None
