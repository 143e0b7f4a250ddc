"""What tests of a collective, a codec or a compressor need, without a network: N ranks in one process.

    LocalGroup          N communicators over a switch that is a Python object
    ReferenceSwitch     that switch: the protocol as docs/protocol.md has it, with checks that no rank breaks it
    TerribleNetwork     loses, repeats and reorders frames, from a seed
"""
