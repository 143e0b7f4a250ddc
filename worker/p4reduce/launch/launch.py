"""The start of a launch's own switches and controller, step by step through the process group's store.

Each rank says which host it is on. Where that is one, sums are made in its memory, and nothing is started. Else the
first rank of each host starts a switch there; rank 0 starts a controller of these switches, which are side by side.
Between hosts P4Runtime and the job service are over TLS, by an authority for this launch, whose certificates go through
the store: they are as secret as the store is.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from p4reduce.errors import JoinError
from p4reduce.launch.addresses import INTERFACE_VARIABLE, host_of, local_addresses, own_address, reachable
from p4reduce.launch.children import Child
from p4reduce.launch.processes import Processes
from p4reduce.membership import one_host
from p4reduce.membership.join import load_all_kernels
from p4reduce.paths.hosts.find import host_key
from p4reduce.timeouts import tries
from p4reduce_contracts.jobs import DEFAULT_CONTROLLER
from p4reduce_contracts.ranks import name_ranks
from p4reduce_contracts.wire.numbers import MAX_CHILDREN
from p4reduce_runtime.addresses import answers
from p4reduce_runtime.environment import P4REDUCE_CA, P4REDUCE_CONTROLLER, P4REDUCE_HOSTID, P4REDUCE_LAUNCH
from p4reduce_runtime.security import is_loopback
from p4reduce_runtime.settings import toml_table
from p4reduce_runtime.tied import open_in_memory

if TYPE_CHECKING:
    from p4reduce.communicator import Communicator
    from p4reduce_runtime.security import Security

_log = logging.getLogger(__name__)

_CONTROLLER: Final = "the controller of this launch"
_DAYS: Final = 365
_ASK_S: Final = 3.0
"""Seconds that a controller has to answer."""
_HEAR_S: Final = 5.0
"""Seconds that the others have to hear of an error."""
_ERROR: Final = "launch/error"
_NONE: Final = "null"
"""What stands in the place of an error once the ranks have agreed that there is none."""
_ADDRESS_ADVICE: Final = f"Give MASTER_ADDR as IPv4, or name in {INTERFACE_VARIABLE} an interface that has IPv4"


class LaunchError(JoinError):
    """An error that is the same on all ranks, and names the one that has it."""


class NamingError(JoinError):
    """An error whose text names the rank that has it."""


class NoRoomError(JoinError):
    """The switch has no slots or job ids left for the group's job."""


@dataclass
class Launch:
    """The controller of a launch, and this rank's children."""

    controller: str = ""
    """HOST:PORT of the job service; "" where there is none."""
    comm: Communicator | None = None
    """The communicator of this rank, where all ranks share a host's memory."""
    security: Security | None = None
    children: list[Child] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """The certificates of its programs, by the names of their files; {} without TLS."""
    _descriptors: list[int] = field(default_factory=list)

    @property
    def owned(self) -> dict[str, Any] | None:
        """What other ranks need to use the controller, if it is a child of this rank that runs; else None."""
        runs = bool(self.children) and self.children[-1].what == _CONTROLLER and self.children[-1].is_running()
        return {"controller": self.controller, "files": self.files} if runs else None

    def take(self, former: Launch) -> None:
        """Take over the children of a launch whose controller this one uses."""
        self.children, former.children = former.children, []

    def mute(self) -> None:
        """Log nothing more of this rank's children: all of them are about to end."""
        for child in self.children:
            child.mute()

    def close(self) -> None:
        """End this rank's children; idempotent. The others must not need them any more."""
        while self.children:
            self.children.pop().close()
        while self._descriptors:
            os.close(self._descriptors.pop())


def start(  # noqa: PLR0917
    store: Any, rank: int, size: int, timeout_s: float, processes: Processes | None = None, former: Launch | None = None
) -> Launch:
    """Start what this rank has to; all ranks call it, and return when the controller is ready.

    Where all ranks are on one host and a controller answers at the default address there, that one is used. `former`:
    the launch of a group before, whose controller is used if a rank of this one has it; else this ends it. Raises
    JoinError, on all ranks, with the last lines of a child that fails.
    """
    launch, former, told = Launch(), former or Launch(), Told(store, timeout_s, processes)
    try:
        with told.telling(rank, size):
            _start(launch, former, told, rank, size, host_of(store))
    except BaseException:
        launch.close()
        raise
    finally:
        former.close()
    return launch


def _start(launch: Launch, former: Launch, told: Told, rank: int, size: int, store_host: str) -> None:
    told.say(f"host/{rank}", _this_host(store_host) | {"owned": former.owned})
    if not rank:
        told.say("hosts", _plan([told.hear(f"host/{other}") for other in range(size)]))
    plan: dict[str, Any] = told.hear("hosts", times=size)
    launch.controller, firsts = plan["controller"], plan["firsts"]
    launch.files = files = plan["files"]
    if files:
        launch.security = _in_memory(launch, files)
    if launch.controller:
        if launch.controller == former.controller:
            launch.take(former)
        return
    why = ""
    if len(firsts) == 1:
        found = share_memory(told, rank, size)
        if not isinstance(found, str):
            launch.comm = found
            if not rank:
                _log.info("all %d ranks on this host, no controller named: sums are made in its memory", size)
            return
        why = f" whose memory is not used ({found})"
    place = firsts.index(rank) if rank in firsts else None
    if place is not None:
        launch.children.append(_switch_at(reachable(plan["addresses"][place], plan["addresses"]), files))
    if not rank:
        launch.children.append(_controller())
    load_all_kernels()  # while the switches do
    if place is not None:
        ready = launch.children[0].wait_for(r"ready: UDP (\S+:\d+); P4Runtime (\S+:\d+)", told.until, told.look)
        told.say(f"switch/{place}", {"udp": ready[1], "p4runtime": ready[2]})
    if not rank:
        switches = [told.hear(f"switch/{place}") for place in range(len(firsts))]
        told.say("controller", _configured(launch.children[1], told.until, switches, files))
    launch.controller = told.hear("controller")
    if not rank:
        where = f"1 host{why}" if len(firsts) == 1 else f"{len(firsts)} hosts"
        _log.info("%s, no controller named: a switch on each, controller on %s", where, launch.controller)


def share_memory(told: Told, rank: int, size: int) -> Communicator | str:
    """Return the communicator of ranks that share their host's memory, or why they cannot; all of them call it."""
    steps = itertools.count()

    def gather(row: bytes) -> list[bytes]:
        step = next(steps)
        told.say(f"memory/{step}/{rank}", row.decode())
        return [told.hear(f"memory/{step}/{other}").encode() for other in range(size)]

    if not rank:
        told.say("name", f"torch-{secrets.token_hex(6)}")
    return one_host.share_memory(told.hear("name"), rank, size, gather, told.timeout_s)


def _this_host(store_host: str) -> dict[str, Any]:
    """Return a rank's host: its key, an address, or the problem why there is none, and all local ones if they count."""
    local = [] if P4REDUCE_HOSTID.read() else local_addresses()
    row = {"key": host_key(os.environ), "address": "", "problem": "", "local": local}
    try:
        return row | {"address": own_address(os.environ, store_host)}
    except JoinError as error:
        return row | {"problem": str(error)}


def _share_host(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two ranks are on one host. Clones of a virtual machine have one key, and other addresses."""
    pairs = (one["address"], other.get("local")), (other["address"], one.get("local"))
    return one["key"] == other["key"] and all(
        not local or is_loopback(f"{address}:0") or address in ("", *local) for address, local in pairs
    )


def _plan(said: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the first rank of each host, their addresses, certificates, and a controller that runs already.

    Of the controllers that ranks have started before, it is that of the first one.
    """
    firsts = [rank for rank, one in enumerate(said) if not any(_share_host(one, other) for other in said[:rank])]
    several = len(firsts) > 1
    addresses = [said[first]["address"] for first in firsts] if several else ["127.0.0.1"]
    if several and "" in addresses:
        rank = firsts[addresses.index("")]
        if problem := said[rank].get("problem"):
            raise NamingError(f"p4reduce needs IPv4 between hosts; rank {rank}: {problem}. {_ADDRESS_ADVICE}")
        raise NamingError(
            f"the ranks are on {len(firsts)} hosts, and not of all an address is known: set {INTERFACE_VARIABLE}"
        )
    there = DEFAULT_CONTROLLER if not several and is_controller(DEFAULT_CONTROLLER) else ""
    if several and (owned := next(filter(None, (one.get("owned") for one in said)), None)):
        return {"firsts": firsts, "addresses": addresses, **owned}
    if len(said) > MAX_CHILDREN and not there:
        raise NamingError(
            f"a launch that names no controller has at most {MAX_CHILDREN} ranks, and this one has {len(said)}: start "
            "a controller with a tree of switches (docs/racks.md) and name it (P4REDUCE_CONTROLLER)"
        )
    files = _certificates() if several or P4REDUCE_CA.read() and not there else {}
    return {"firsts": firsts, "addresses": addresses, "controller": there, "files": files}


def is_controller(address: str) -> bool:
    """Return whether a controller with a switch answers there; log a warning where something else listens."""
    if not answers(address):
        return False
    from p4reduce_contracts.jobs.client import JobClient
    from p4reduce_contracts.jobs.errors import ControllerFailedError, ControllerUnreachableError, JobServiceError

    problem = ""
    with JobClient(address, timeout_s=_ASK_S) as client:
        for _ in tries(_ASK_S):  # it may be about to start
            try:
                switches = client.list_switches()
            except (ControllerFailedError, ControllerUnreachableError) as error:
                problem = str(error)
                continue
            except JobServiceError:
                return True
            if any(not each.problem for each in switches):
                return True
            problem = f"it has no switch: {'; '.join(str(each.problem) for each in switches)}"
    _log.warning("what listens at %s is not used: %s", address, problem)
    return False


def _switch_at(address: str, files: Mapping[str, str]) -> Child:
    arguments = ["switch", "run", "--listen", f"{address}:0", "--p4runtime", f"{address}:0", "--log-level", "warning"]
    for option, path in _credentials("switch").items() if files else ():
        arguments += [f"--tls-{option}", path]
    child = Child("the switch of this launch", arguments)
    child.give(_files_of("switch", files))
    return child


def _controller() -> Child:
    """Return the controller, which waits for its configuration: its modules take a second to import."""
    arguments = ["controller", "run", "--config", "{controller.toml}", "--log-level", "warning"]
    modules = "p4reduce_contracts.cli", "p4reduce_controller.service.process"
    return Child(_CONTROLLER, arguments, modules)


def _configured(
    controller: Child, until: float, switches: Sequence[Mapping[str, str]], files: Mapping[str, str]
) -> str:
    """Let it begin, and return where it serves jobs."""
    udp = [switch["udp"].rpartition(":") for switch in switches]
    lines = toml_table("[controller]", listen=f"{udp[0][0]}:0", state_dir=":memory:")
    if files:
        lines += toml_table("[security]", **_credentials("controller"))
    for number, (switch, (host, _, port)) in enumerate(zip(switches, udp, strict=True)):
        place = {"p4runtime": switch["p4runtime"], "address": host, "udp_port": int(port)}
        lines += toml_table("[[switch]]", name=f"host{number}", **place)
    controller.give(_files_of("controller", files) | {"controller.toml": "\n".join(lines)})
    ready = controller.wait_for(r"controller ready: jobs on (\S+:\d+),", until)
    controller.check_silent("switch not reached")
    return ready[1]


def _files_of(program: str, files: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in files.items() if name.startswith(("ca.", f"{program}."))}


def _credentials(program: str) -> dict[str, str]:
    """Return what stands for the paths of these files in a child's settings, by their names."""
    return {"ca": "{ca.pem}", "certificate": f"{{{program}.pem}}", "key": f"{{{program}.key}}"}


def _certificates() -> dict[str, str]:
    from p4reduce_runtime.certificates import CA_KEY, make_texts

    return {name: text for name, text in make_texts(_DAYS).items() if name != CA_KEY}


def _in_memory(launch: Launch, files: Mapping[str, str]) -> Security:
    """Return this rank's credentials, which are in files of this process's memory."""
    from p4reduce_runtime.security import Security

    launch._descriptors += [open_in_memory(files[name]) for name in ("ca.pem", "worker.pem", "worker.key")]
    return Security(*(Path(f"/proc/self/fd/{descriptor}") for descriptor in launch._descriptors))


class Told:
    """What the ranks tell each other in the store. An error that one rank tells is raised where another one waits."""

    def __init__(self, store: Any, timeout_s: float, processes: Processes | None = None) -> None:
        self._store, self.timeout_s, self._processes = store, timeout_s, processes
        self.until = time.monotonic() + timeout_s
        self._heard = 0
        """How many ranks have heard of an error, once this one has."""

    def say(self, key: str, value: object) -> None:
        self._store.set(f"launch/{key}", json.dumps(value))

    def look(self) -> None:
        """Raise the error that a rank has told, or that its process has ended, while something of all is awaited."""
        self.check()
        for rank in () if self._processes is None else self._processes.ended():
            self._store.compare_set(_ERROR, "", json.dumps(f"rank {rank}: its process has ended"))
            self.check()

    def check(self) -> None:
        """Raise the error that a rank has told."""
        if self._store.check([_ERROR]) and (said := json.loads(self._store.get(_ERROR))) is not None:
            self._hear_error()
            raise LaunchError(said)

    def agree(self, rank: int, size: int, what: str) -> None:
        """Return, on all ranks or on none, once all have called it, at the end of a block of `telling`.

        Raises the error that a rank has told; after the time is over that the missing ones did not do `what`.
        """
        self.say(f"ready/{rank}", "")
        missing = list(range(size))
        for _ in tries(self.until - time.monotonic()):
            missing = [each for each in missing if not self._store.check([f"launch/ready/{each}"])]
            if not missing:
                break
            self.look()
        else:
            raise NamingError(f"timed out after {self.timeout_s:g} s: {name_ranks(missing)} did not {what}")
        if (said := json.loads(self._store.compare_set(_ERROR, "", _NONE))) is not None:
            raise LaunchError(said)

    @contextlib.contextmanager
    def telling(self, rank: int, size: int, hear_s: float | None = None) -> Iterator[None]:
        """Tell all ranks what error ends the block, and raise that which was told first; none if all agreed before it.

        Rank 0, with which the store may end, waits until all have heard of it, for `hear_s` at most (None: 5 s).
        """
        try:
            yield
        except (LaunchError, NoRoomError):
            raise
        except BaseException as error:
            text = str(error) or repr(error)
            names = isinstance(error, NamingError) or text.startswith("rank ")
            text = text if names else f"rank {rank}: {text}"
            with contextlib.suppress(RuntimeError):  # the store may be what has failed
                said = json.loads(self._store.compare_set(_ERROR, "", json.dumps(text)))
                if said is None and isinstance(error, Exception):
                    return
                for _ in tries(0 if rank else _HEAR_S if hear_s is None else hear_s):
                    if self._hear_error() >= size:
                        break
                if isinstance(error, Exception):
                    raise LaunchError(said) from error
            raise

    def _hear_error(self) -> int:
        """Return how many ranks have heard of it, with this one."""
        self._heard = self._store.add(f"{_ERROR}/heard", int(not self._heard))
        return self._heard

    def hear(self, key: str, times: int = 0) -> Any:
        """Return what was said. Raises JoinError at the deadline.

        The last one of `times` that hear it takes it out of the store; 0: it stays there.
        """
        key = f"launch/{key}"
        for _ in tries(self.until - time.monotonic()):
            if self._store.check([key]):
                said = json.loads(self._store.get(key))
                if times and self._store.add(f"{key}/heard", 1) == times:
                    self._store.delete_key(key)
                return said
            self.look()
        raise JoinError(
            f"the ranks have not started in time what the launch needs (missing: {key}); is {P4REDUCE_CONTROLLER} or "
            f"{P4REDUCE_LAUNCH} set on some of them only?"
        )
