// And, or, xor, not of 2048 bits.
#include "construct.p4"

header h_t { bit<8> operation; bit<2048> a; bit<2048> b; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        if (hdr.h.operation == 0) { hdr.h.a = hdr.h.a & hdr.h.b; }
        else if (hdr.h.operation == 1) { hdr.h.a = hdr.h.a | hdr.h.b; }
        else if (hdr.h.operation == 2) { hdr.h.a = hdr.h.a ^ hdr.h.b; }
        else { hdr.h.a = ~hdr.h.a; }
        std.egress_spec = 1;
    }
}
REST
