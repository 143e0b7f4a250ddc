// Concatenation, also of what was just shifted.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<24> c; bit<32> d; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        hdr.h.c = hdr.h.a ++ hdr.h.b ++ hdr.h.a;
        hdr.h.d = (hdr.h.a << 1) ++ 8w0x5A ++ (hdr.h.b + 1) ++ hdr.h.b[3:0] ++ hdr.h.a[7:4];
        std.egress_spec = 1;
    }
}
REST
