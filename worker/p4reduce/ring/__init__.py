"""The mean over a ring of hosts, in a codec whose numbers no switch can sum; it needs torch and no switch.

`schedule` has no I/O, `hook` is for DistributedDataParallel.
"""

from p4reduce.codecs.inceptionn import Inceptionn
from p4reduce.ring.hook import RingState, ring_hook

__all__ = ["Inceptionn", "RingState", "ring_hook"]
