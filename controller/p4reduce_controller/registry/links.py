"""The links between switches, found by HELLOs that the controller sends out of them.

A switch with a parent sends a HELLO out of its uplink port; the parent punts it, and its source and ingress port are
the child's address there. The parent then sends one out of that port, which shows its own address at the child. The
first ones are sent as soon as they can arrive, then both are sent again and again: a parent with UDP peers gives the
port of a silent one to others, a cable may be moved, and a link may carry frames one way only. A link is looked for
anew when its HELLO comes from another address than before, and after either switch was lost. One whose HELLOs no longer
arrive is silent: jobs that have it keep it, and no other gets it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from p4reduce_controller.registry.hello import Address, Hello, hello_frame
from p4reduce_controller.registry.tree import Tree

LINK_JOB = 0
"""The job id of such a HELLO; jobs have 1 to 255."""
SILENT_AFTER = 5
"""Number of HELLOs in a row that do not arrive, after which a link counts as silent."""
random_nonce = partial(secrets.randbits, 64)


@dataclass(frozen=True)
class Link:
    """A link between a switch and its parent, both ends of which are known."""

    child: Address
    """The child's address, as its parent sees it."""
    parent: Address
    """The parent's address, as its child sees it."""


@dataclass
class _End:
    """One direction of a link: HELLOs with this nonce, and from where they arrive."""

    nonce: int
    address: Address | None = None
    fault: str | None = None
    """The wrong place at which a HELLO arrived, None if none did since one arrived at the right place."""
    missing: int = 0
    """Number of HELLOs sent since one arrived, once the address is known."""
    first: bool = True
    """Whether the next HELLO is the first, which does not wait for the period."""


class Links:
    """The links of a tree. It does no I/O: `hellos` says what to send, `arrived` takes what came in."""

    def __init__(self, tree: Tree, draw_nonce: Callable[[], int] = random_nonce) -> None:
        self._tree = tree
        self._draw_nonce = draw_nonce
        self._ends: dict[tuple[str, str], _End] = {}
        """The directions of the links, by sender and receiver."""
        self._not_primary: set[str] = set()
        for child in tree.switches:
            if (parent := tree.parent(child)) is not None:
                self._ends[child, parent] = _End(draw_nonce())
                self._ends[parent, child] = _End(draw_nonce())

    def link(self, child: str) -> Link | None:
        """Return the link of a switch to its parent, None while it is not known."""
        parent = self._parent(child)
        up, down = self._ends[child, parent].address, self._ends[parent, child].address
        return None if up is None or down is None else Link(up, down)

    def parent_port(self, child: str) -> int | None:
        """Return the parent's port towards a switch, None while it is not known."""
        up = self._ends[child, self._parent(child)].address
        return None if up is None else up.ingress_port

    def fault(self, child: str) -> str | None:
        """Return which HELLO between a switch and its parent arrived elsewhere than it should, None if none did."""
        parent = self._parent(child)
        return self._ends[child, parent].fault or self._ends[parent, child].fault

    def problem(self, child: str) -> str | None:
        """Return why the link of a switch to its parent is not known or is silent, None if neither."""
        parent = self._parent(child)
        silent = []
        for sender, receiver in ((child, parent), (parent, child)):
            end = self._ends[sender, receiver]
            port = self._uplink_port(child) if sender == child else self.parent_port(child)
            hello = f"the HELLO that {sender} sends out of port {port}"
            if end.address is None:
                if receiver in self._not_primary:
                    hello = f"another controller is primary for {receiver}: {hello}"
                why = end.fault or f"{hello} never arrived at {receiver}"
                return f"the link from {child} to {parent} was not seen: {why}"
            if end.missing >= SILENT_AFTER:
                silent.append(end.fault or f"{hello} does not arrive at {receiver} any more")
        return f"the link from {child} to {parent} is silent: {', and '.join(silent)}" if silent else None

    def hellos(self, switch: str) -> list[tuple[int, bytes]]:
        """Return the HELLOs that `switch` has to send in each period: port and frame of each."""
        return [(port, self._frame(switch, receiver)) for receiver, port in self._targets(switch)]

    def first_hellos(self, switch: str) -> list[tuple[int, bytes]]:
        """Return those that `switch` has to send now, since their links are looked for anew; each only once."""
        found = []
        for receiver, port in self._targets(switch):
            if (end := self._ends[switch, receiver]).first:
                end.first = False
                found.append((port, self._frame(switch, receiver)))
        return found

    def sent(self, switch: str) -> list[str]:
        """Record that `switch` has sent its HELLOs of a period. Return the children of links that this makes silent."""
        silent = []
        for receiver, _ in self._targets(switch):
            end = self._ends[switch, receiver]
            if end.address is not None and receiver not in self._not_primary:
                end.missing += 1
                if end.missing == SILENT_AFTER:
                    silent.append(switch if self._tree.parent(switch) == receiver else receiver)
        return silent

    def arrived(self, hello: Hello, switch: str) -> str | None:
        """Take a HELLO that `switch` punted. Return the child of the link whose state it changes, else None.

        A HELLO that arrives elsewhere than it should is the link's fault. On a known link, where it may be a copy, it
        counts only when the link is silent.
        """
        for (sender, receiver), end in self._ends.items():
            if end.nonce != hello.nonce:
                continue
            child = sender if self._tree.parent(sender) == receiver else receiver
            before = replace(end)
            port = hello.address.ingress_port
            if switch != receiver:
                end.fault = f"the HELLO from {sender} to {receiver} arrived at {switch}, by its port {port}"
                if end.address is not None:
                    return None
            elif end.address is not None and hello.address != end.address:
                self._forget(sender, receiver)  # not taken as it is: it may be a copy of the HELLO
                self._ends[child, self._parent(child)].first = False  # where copies come, each would cause another
                return child
            elif end.address is not None:
                end.fault, end.missing = None, 0
                return child if before.missing >= SILENT_AFTER else None
            elif child == receiver and port != self._uplink_port(child):
                end.fault = (
                    f"the HELLO from {sender} arrived at {child} by port {port}, and the configuration says "
                    f"uplink_port = {self._uplink_port(child)}"
                )
            else:
                end.address, end.fault = hello.address, None
            return child if end != before else None
        return None

    def lost(self, switch: str) -> None:
        """Forget the links of a switch: its ports may be others now. HELLOs go out of them at once."""
        for sender, receiver in self._ends:
            if sender == switch:
                self._forget(sender, receiver)

    def primary(self, switch: str, *, is_primary: bool) -> None:
        """Record whether this controller is primary for a switch: otherwise another one gets what arrives there."""
        (self._not_primary.discard if is_primary else self._not_primary.add)(switch)

    def _forget(self, one: str, other: str) -> None:
        """Look for the link between two switches anew."""
        self._ends[one, other], self._ends[other, one] = _End(self._draw_nonce()), _End(self._draw_nonce())

    def _targets(self, switch: str) -> Iterator[tuple[str, int]]:
        """The switches that a switch sends HELLOs to, and by which of its ports; no child before its own has come."""
        if (parent := self._tree.parent(switch)) is not None:
            yield parent, self._uplink_port(switch)
        for child in self._tree.children(switch):
            if (port := self.parent_port(child)) is not None:
                yield child, port

    def _parent(self, child: str) -> str:
        parent = self._tree.parent(child)
        assert parent is not None, "only a switch with a parent has a link"
        return parent

    def _uplink_port(self, child: str) -> int:
        port = self._tree.switches[child].config.uplink_port
        assert port is not None, "the configuration has one for each switch with a parent"
        return port

    def _frame(self, sender: str, receiver: str) -> bytes:
        source, target = (self._tree.switches[name].config for name in (sender, receiver))
        to, udp_port = (target.trunk_mac_value, target.trunk_ip_value), target.udp_port
        seen = self._ends[receiver, sender].address if self._tree.parent(receiver) == sender else None
        if seen is not None:  # the child, from where its own HELLO came: there may be a NAT between them
            to, udp_port = (seen.mac, seen.ip), seen.udp_port
        nonce = self._ends[sender, receiver].nonce
        source_address = source.trunk_mac_value, source.trunk_ip_value
        return hello_frame(LINK_JOB, nonce, source=source_address, target=to, udp_port=udp_port)
