// lookahead of a whole header.
#include "construct.p4"

header h_t { bit<4> a; bit<12> b; bit<16> c; }
ONLY_H
PARSE {
    state start {
        h_t peek = packet.lookahead<h_t>();
        transition select(peek.b, peek.c) { (0x123, _): take; (_, 0x8000 &&& 0x8000): take; default: accept; }
    }
    state take { packet.extract(hdr.h); transition accept; }
}
INGRESS { apply { if (hdr.h.isValid()) { hdr.h.a = 0xF; } std.egress_spec = 1; } }
REST
