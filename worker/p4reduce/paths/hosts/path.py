"""The path over hosts: the ranks compare their calls over the switch or in memory, and each host sums in its memory.

The first collective on this path finds the hosts. Without hosts of several ranks, or without room, it is as the path
over the switch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from p4reduce import collectives
from p4reduce.collectives import Contribution
from p4reduce.errors import P4ReduceError
from p4reduce.paths.hosts.find import Hosts
from p4reduce.paths.hosts.layout import HostLayout
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.paths.path import FinishedCollective, Lost
from p4reduce.paths.switch import SwitchPath
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.deadline import Deadline


class HostsPath:
    """Runs the collectives of a communicator's epoch that are large enough to be summed over hosts."""

    def __init__(self, hosts: Hosts, all_ranks: SwitchPath) -> None:
        """`hosts`: what is known of them. `all_ranks`: the path of the same epoch on which all ranks compare calls."""
        self._hosts, self._all_ranks = hosts, all_ranks

    def run(self, contribution: Contribution, deadline: Deadline, lost: Lost) -> FinishedCollective:
        """Take part in a collective until it is done. Raises CollectiveError, and what `lost` returns."""
        refused = self.find(contribution, deadline, lost)
        if refused is not None:
            return refused
        sums = self._hosts.sums
        layout = None if sums is None else sums.layout(contribution.blocks)
        if sums is None or layout is None:
            return self._all_ranks.run(contribution, deadline, lost)
        return self._sum(sums, layout, contribution, deadline, lost)

    def find(self, contribution: Contribution, deadline: Deadline, lost: Lost) -> FinishedCollective | None:
        """Find the hosts, once all ranks have called this collective, if that was not done before.

        Return the collective where a rank refused it: it is over then, and the hosts are not looked for.
        """
        if self._hosts.searched:
            return None
        lease = self._all_ranks.lease

        def run(step: Contribution) -> Any:
            step = replace(step, number=contribution.number)
            return step.finish(self._all_ranks.run(step, deadline, lost).result())

        def gather(row: bytes) -> list[bytes]:
            lengths: list[int] = run(collectives.all_gather_length(lease, row))
            rows: list[bytes] = run(collectives.all_gather_bytes(lease, row, lengths))
            return rows

        agreement = f"{contribution.agreement}|search for hosts"  # not the call itself, which has blocks
        compared = self._all_ranks.run(replace(contribution, blocks=Blocks(), agreement=agreement), deadline, lost)
        if compared.refusals:
            return compared
        self._hosts.find(lease, gather, deadline.left_s(self._all_ranks.clock()))
        return None

    def _sum(
        self, sums: HostSums, layout: HostLayout, contribution: Contribution, deadline: Deadline, lost: Lost
    ) -> FinishedCollective:
        copies, blocks = sums.publish(contribution.blocks, layout), Blocks()
        blocks.copy = None if copies is None else copies.in_meanwhile
        agreement = f"{contribution.agreement}|over hosts"
        compared = self._all_ranks.run(replace(contribution, blocks=blocks, agreement=agreement), deadline, lost)
        if compared.refusals:
            return compared

        def lost_over_hosts() -> P4ReduceError | None:
            return lost() or self._hosts.failure()

        left_s, total = deadline.left_s(self._all_ranks.clock()), self._all_ranks.total
        summed = sums.sum(compared.call, contribution, layout, copies, left_s, lost_over_hosts, total)
        failure = lost()
        if failure is not None:  # another thread may have closed the communicator, and taken the arrays out of the sum
            raise failure.with_traceback(None)
        return summed
