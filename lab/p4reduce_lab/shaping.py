"""Rate, delay and loss of a link, each in both directions.

Rate: `tc tbf` at both ends. Delay: `tc netem` at both ends. Loss: random drops in nftables inside the host's
namespace, where both directions pass a hook (a switch reads its interfaces before any hook of their own). Between two
switches the drops are in the namespace between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from p4reduce_lab.errors import CommandError, MissingToolError
from p4reduce_lab.network import CURRENT, DATA, Namespace, need

_BITS = 8
_MTU_FRAME_BYTES = 1514
_TICKS_PER_S = 250  # of a kernel's timer: a bucket has to hold what passes in one
_LOSS_PARTS = 100_000


@dataclass(frozen=True)
class Shape:
    """The delay, rate, loss and buffer of a link, in each direction."""

    delay_ms: float = 0.0
    rate_mbit: float | None = None
    loss_percent: float = 0.0
    burst_bytes: int | None = None
    """Bytes of the token bucket; None: what passes in a tick of the kernel's timer, at least ten full frames."""
    queue_ms: float = 50.0
    """Milliseconds that a frame may wait for tokens."""


def shape_link(host: str, shape: Shape, namespace: Namespace, switch_interface: str) -> None:
    """Give the link from DATA in a host's namespace to `switch_interface` here its shape, in place of one before.

    Raises MissingToolError where the kernel cannot, naming what is missing.
    """
    rules = nft_rules([DATA], shape.loss_percent)
    _shape(host, shape, [(namespace, DATA), (CURRENT, switch_interface)], namespace, rules)


def shape_trunk(
    switch: str, shape: Shape, switch_interfaces: Sequence[str], between: Namespace, inside: Sequence[str]
) -> None:
    """Give the link of a switch to its parent its shape: both have an interface here, whose other ends are `inside`.

    `inside` are ports of a bridge in the namespace `between`. Raises MissingToolError as `shape_link` does.
    """
    rules = nft_rules(inside, shape.loss_percent, ("ingress",))
    _shape(switch, shape, [(CURRENT, name) for name in switch_interfaces], between, rules)


def _shape(name: str, shape: Shape, ends: Sequence[tuple[Namespace, str]], of_rules: Namespace, rules: str) -> None:
    for namespace, device in ends:
        try:
            for command in qdiscs(shape, device):
                namespace.run(*command)
        except CommandError as error:
            if "netem" in str(error):
                raise MissingToolError(
                    f"the link of {name} has a delay of {shape.delay_ms:g} ms, and this kernel has no netem: load it "
                    "(modprobe sch_netem, CONFIG_NET_SCH_NETEM) or take the delay out of the topology"
                ) from error
            raise
    if shape.loss_percent:
        of_rules.run(need("nft", f"the link of {name} has a loss, which needs it: apt install nftables"), rules)


def qdiscs(shape: Shape, device: str) -> list[list[str]]:
    """Return the `tc` commands for what leaves by a device."""
    commands, place = [], ["root", "handle", "1:"]
    if shape.rate_mbit is not None:
        bytes_per_s = shape.rate_mbit * 1e6 / _BITS
        burst = shape.burst_bytes or int(max(bytes_per_s / _TICKS_PER_S, 10 * _MTU_FRAME_BYTES))
        tbf = ["rate", f"{shape.rate_mbit:g}mbit", "burst", str(burst), "latency", f"{shape.queue_ms:g}ms"]
        commands.append(["tc", "qdisc", "replace", "dev", device, *place, "tbf", *tbf])
        place = ["parent", "1:1", "handle", "10:"]
    if shape.delay_ms:
        netem = ["netem", "delay", f"{shape.delay_ms:g}ms", "limit", "10000"]
        commands.append(["tc", "qdisc", "replace", "dev", device, *place, *netem])
    return commands or [["tc", "qdisc", "replace", "dev", device, "root", "noqueue"]]


def nft_rules(interfaces: Sequence[str], loss_percent: float, hooks: Sequence[str] = ("ingress", "egress")) -> str:
    """Return nftables text that drops at random what enters ("ingress") and leaves ("egress") by interfaces."""
    drop = f"numgen random mod {_LOSS_PARTS} < {round(loss_percent * _LOSS_PARTS / 100)} counter drop;"
    chains = " ".join(
        f"chain {hook}_{interface.replace('-', '_')} "
        f'{{ type filter hook {hook} device "{interface}" priority 0; {drop} }};'
        for interface in interfaces
        for hook in hooks
    )
    return f"table netdev p4reduce_loss {{ {chains} }}"
