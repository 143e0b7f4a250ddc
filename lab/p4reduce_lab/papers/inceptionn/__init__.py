"""The mean over a ring of hosts, in a codec whose numbers no switch can sum; it needs torch and no switch.

`ring` has the schedule, without I/O; `hook` is for DistributedDataParallel.
"""

from p4reduce_lab.papers.inceptionn.codec import Inceptionn
from p4reduce_lab.papers.inceptionn.hook import RingState, ring_hook

__all__ = ["Inceptionn", "RingState", "ring_hook"]
