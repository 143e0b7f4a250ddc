// Slices as targets.
#include "construct.p4"

header h_t { bit<32> a; bit<64> b; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        hdr.h.a[7:4] = hdr.h.b[3:0];
        hdr.h.a[31:31] = 1;
        hdr.h.b[47:16] = hdr.h.a;
        hdr.h.b[63:60] = hdr.h.b[3:0] + 1;
        std.egress_spec = 1;
    }
}
REST
