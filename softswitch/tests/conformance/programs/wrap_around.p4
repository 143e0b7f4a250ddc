// Sums, differences, products and negatives of odd widths wrap.
#include "construct.p4"

header h_t { bit<5> a; bit<11> b; bit<11> c; bit<13> d; bit<8> e; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        hdr.h.a = hdr.h.a - 9;
        hdr.h.c = hdr.h.b + hdr.h.c;
        hdr.h.b = -hdr.h.b;
        hdr.h.d = hdr.h.d * 37;
        hdr.h.e = hdr.h.e * hdr.h.e;
        std.egress_spec = 1;
    }
}
REST
