// Shifts of shifts, by fields and by what other shifts give, also past the width.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<32> twice; bit<32> back; int<32> signed; bit<32> amount; bit<64> wide; bit<32> wrapped; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        hdr.h.twice = hdr.h.twice << hdr.h.a << hdr.h.b;
        hdr.h.back = (hdr.h.back << hdr.h.a) >> hdr.h.b;
        hdr.h.signed = hdr.h.signed << hdr.h.b >> hdr.h.a >> hdr.h.b;
        hdr.h.amount = hdr.h.amount >> (hdr.h.a << (hdr.h.b >> 1));
        hdr.h.wide = (hdr.h.wide >> (hdr.h.a >> hdr.h.b)) << (8w1 << hdr.h.b);
        hdr.h.wrapped = hdr.h.wrapped << (hdr.h.a - hdr.h.b) >> (bit<8>)((int<8>)hdr.h.b - (int<8>)hdr.h.a);
        std.egress_spec = 1;
    }
}
REST
