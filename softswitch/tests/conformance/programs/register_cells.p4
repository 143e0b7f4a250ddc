// Registers keep what earlier frames wrote.
#include "construct.p4"

header h_t { bit<8> operation; bit<8> index; bit<16> value; }
ONLY_H
PARSE_H
INGRESS {
    register<bit<16>>(4) cells;
    apply {
        bit<16> old;
        bit<32> index = (bit<32>)(hdr.h.index & 3);
        cells.read(old, index);
        if (hdr.h.operation == 1) { cells.write(index, hdr.h.value); }
        else if (hdr.h.operation == 2) { cells.write(index, old + hdr.h.value); }
        hdr.h.value = old;
        std.egress_spec = 1;
    }
}
REST
