// Slices as values.
#include "construct.p4"

header h_t { bit<32> a; bit<4> w; bit<12> x; bit<1> y; bit<15> z; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        hdr.h.w = hdr.h.a[31:28];
        hdr.h.x = hdr.h.a[20:9];
        hdr.h.y = hdr.h.a[0:0];
        hdr.h.z = hdr.h.z[7:0] ++ hdr.h.z[14:8];
        std.egress_spec = 1;
    }
}
REST
