// The conditional operator, nested.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<8> c; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        hdr.h.c = hdr.h.a > hdr.h.b ? hdr.h.a - hdr.h.b : (hdr.h.a == hdr.h.b ? 8w0xEE : hdr.h.b - hdr.h.a);
        std.egress_spec = hdr.h.c[0:0] == 1 ? 9w1 : 9w2;
    }
}
REST
