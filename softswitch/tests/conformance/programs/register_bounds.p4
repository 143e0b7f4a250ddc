// Reading a register beyond its end gives 0, writing there does nothing.
#include "construct.p4"

header h_t { bit<8> operation; bit<8> index; bit<16> value; }
ONLY_H
PARSE_H
INGRESS {
    register<bit<16>>(4) cells;
    apply {
        bit<16> old = 0x7777;
        if (hdr.h.operation == 1) { cells.write((bit<32>)hdr.h.index, hdr.h.value); }
        else { cells.read(old, (bit<32>)hdr.h.index); hdr.h.value = old; }
        std.egress_spec = 1;
    }
}
REST
