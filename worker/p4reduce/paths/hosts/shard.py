"""The collectives between hosts: of the ranks that send one shard, one of each host, in a job of their own."""

from __future__ import annotations

from p4reduce.collectives import Contribution
from p4reduce.errors import CollectiveMismatchError, CollectiveTimeoutError
from p4reduce.paths.hosts.plan import HostPlan
from p4reduce.paths.path import FinishedCollective, Lost
from p4reduce.paths.switch import SwitchPath
from p4reduce.protocol.deadline import Deadline, Obstacle, too_late
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.ranks import name_ranks


class ShardPath:
    """Runs them over the switch. Its errors name the ranks of the communicator's job; those of its own are hosts."""

    def __init__(self, plan: HostPlan, shard: int, over_switch: SwitchPath) -> None:
        self._plan, self._shard, self.over_switch = plan, shard, over_switch

    def run(  # noqa: PLR0917
        self, contribution: Contribution, timeout_s: float, lost: Lost, stats: CollectiveStats, limit_s: float = 0.0
    ) -> FinishedCollective:
        """Take part in a collective until it is done, and add what it took to `stats`, but no collective.

        `limit_s`: what the caller gave; default: `timeout_s`. Raises CollectiveError, and what `lost` returns.
        """
        path, limit_s = self.over_switch, limit_s or timeout_s
        before = path.total.copy()
        try:
            finished = path.run(contribution, Deadline(path.clock() + timeout_s, limit_s), lost)
        except CollectiveTimeoutError as error:
            if not error.missing_ranks:
                raise
            ranks = [self.rank_of(host) for host in error.missing_ranks]
            why = Obstacle(f"the switch still waits for {name_ranks(ranks)}", tuple(ranks))
            raise too_late(contribution.call(limit_s=limit_s), timeout_s, why) from None
        except CollectiveMismatchError as error:
            calls = {self.rank_of(host): text for host, text in error.calls.items()}
            raise CollectiveMismatchError(calls, error.layout) from None
        finally:
            spent = path.total - before
            spent.collectives = 0
            stats.add(spent)
        path.probe_gso()
        return finished

    def rank_of(self, host: int) -> int:
        """Return which rank of a host sends this shard."""
        return self._plan.hosts[host][self._shard]
