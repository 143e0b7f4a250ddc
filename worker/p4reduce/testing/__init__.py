"""What tests of a collective, a codec or a compressor need, without a controller: mostly N ranks in one process.

LocalGroup          N communicators over a switch that is a Python object
ReferenceSwitch     that switch: the protocol as docs/protocol.md has it, with checks that no rank breaks it
UdpSwitch           the same on a real UDP socket, for ranks that are processes
in_process          exchanges and sums of all ranks in one thread, without frames: the switch's results, much faster
World               a network of ranks and switches in virtual time, with faults, from a seed
"""
