// Saturating sums and differences, unsigned and signed.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<8> up; bit<8> down; int<8> c; int<8> d; int<8> sup; int<8> sdown; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        hdr.h.up = hdr.h.a |+| hdr.h.b;
        hdr.h.down = hdr.h.a |-| hdr.h.b;
        hdr.h.sup = hdr.h.c |+| hdr.h.d;
        hdr.h.sdown = hdr.h.c |-| hdr.h.d;
        std.egress_spec = 1;
    }
}
REST
