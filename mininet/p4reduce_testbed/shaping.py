"""Rate, delay and loss of a host's link, each in both directions.

Rate: `tc tbf` at both ends. Delay: `tc netem` at both ends. Loss: random drops in nftables inside the host's
namespace, where both directions pass a hook (a switch reads its interfaces before any hook of their own), or
netem where nftables is missing.
"""

from __future__ import annotations

import shutil

from p4reduce_testbed.commands import run
from p4reduce_testbed.errors import CommandFailed, MissingTool
from p4reduce_testbed.topology import Host, Shape

_BITS = 8
_MTU_FRAME_BYTES = 1514
_TICKS_PER_S = 250  # of a kernel's timer: a bucket has to hold what passes in one
_QUEUE_MS = 50.0
_LOSS_PARTS = 100_000


def shape(host: Host, interface: str, switch_interface: str, within: list[str]) -> None:
    """Give a host's link its shape. `within` goes before commands to run on the host.

    Raises MissingTool where the kernel cannot, naming what is missing.
    """
    wanted = host.shape
    by_nft = wanted.loss_percent > 0 and shutil.which("nft") is not None
    netem_loss = 0.0 if by_nft else wanted.loss_percent
    for prefix, device in ((within, interface), ([], switch_interface)):
        try:
            for command in qdiscs(wanted, device, netem_loss):
                run([*prefix, *command])
        except CommandFailed as error:
            if "netem" in str(error):
                raise MissingTool(_no_netem(host, netem_loss)) from error
            raise
    if by_nft:
        run([*within, "nft", nft_rules(interface, wanted.loss_percent)])


def qdiscs(wanted: Shape, device: str, loss_percent: float = 0.0) -> list[list[str]]:
    """Return the `tc` commands for what leaves by a device."""
    netem: list[str] = []
    if wanted.delay_ms:
        netem += ["delay", f"{wanted.delay_ms:g}ms", "limit", "10000"]
    if loss_percent:
        netem += ["loss", f"{loss_percent:g}%"]
    commands, place = [], ["root", "handle", "1:"]
    if wanted.rate_mbit is not None:
        bytes_per_s = wanted.rate_mbit * 1e6 / _BITS
        burst = int(max(bytes_per_s / _TICKS_PER_S, 10 * _MTU_FRAME_BYTES))
        tbf = ["rate", f"{wanted.rate_mbit:g}mbit", "burst", str(burst), "latency", f"{_QUEUE_MS:g}ms"]
        commands.append(["tc", "qdisc", "add", "dev", device, *place, "tbf", *tbf])
        place = ["parent", "1:1", "handle", "10:"]
    if netem:
        commands.append(["tc", "qdisc", "add", "dev", device, *place, "netem", *netem])
    return commands


def nft_rules(interface: str, loss_percent: float) -> str:
    """Return nftables text that drops at random what enters and leaves by an interface."""
    drop = f"numgen random mod {_LOSS_PARTS} < {round(loss_percent * _LOSS_PARTS / 100)} counter drop;"
    chains = " ".join(
        f'chain {hook} {{ type filter hook {hook} device "{interface}" priority 0; {drop} }};'
        for hook in ("ingress", "egress")
    )
    return f"table netdev p4reduce_loss {{ {chains} }}"


def _no_netem(host: Host, loss_percent: float) -> str:
    if host.shape.delay_ms:
        return (
            f"the link of {host.name} has a delay of {host.shape.delay_ms:g} ms, and this kernel has no "
            "netem: load it (modprobe sch_netem, CONFIG_NET_SCH_NETEM) or take the delay out of the topology"
        )
    return (
        f"the link of {host.name} has a loss of {loss_percent:g} %, which takes nftables (apt install "
        "nftables) or a kernel with netem (CONFIG_NET_SCH_NETEM)"
    )
