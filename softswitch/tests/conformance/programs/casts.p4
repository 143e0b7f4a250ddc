// Casts: wider, narrower, with a sign, to bool and back.
#include "construct.p4"

header h_t { bit<8> a; bit<16> up; bit<4> down; bit<4> pad; int<16> extended; bit<16> raw; bit<1> flag; bit<7> rest; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        hdr.h.up = (bit<16>)hdr.h.a + 0xFF00;
        hdr.h.down = (bit<4>)hdr.h.a;
        hdr.h.extended = (int<16>)(int<8>)hdr.h.a;
        hdr.h.raw = (bit<16>)(int<16>)(int<8>)hdr.h.a + 1;
        bool odd = (bool)hdr.h.a[0:0];
        hdr.h.flag = (bit<1>)(!odd);
        std.egress_spec = 1;
    }
}
REST
