// Functions, and actions called with in, out and inout arguments.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<8> most; }
ONLY_H
bit<8> larger(in bit<8> x, in bit<8> y) { if (x > y) { return x; } return y; }
PARSE_H
INGRESS {
    action swap(inout bit<8> x, inout bit<8> y) { bit<8> t = x; x = y; y = t; }
    action fill(out bit<8> x, in bit<8> y) { x = y + 1; }
    apply {
        hdr.h.most = larger(hdr.h.a, hdr.h.b);
        swap(hdr.h.a, hdr.h.b);
        if (hdr.h.a == hdr.h.most) { fill(hdr.h.b, hdr.h.a); }
        std.egress_spec = 1;
    }
}
REST
