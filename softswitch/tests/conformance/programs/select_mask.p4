// select with masks, ranges, sets of values and several keys.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; }
struct headers { h_t h; }
struct metadata { bit<8> path; }
PARSE {
    state start {
        packet.extract(hdr.h);
        transition select(hdr.h.a, hdr.h.b) {
            (0, 0): zero;
            (0x40 &&& 0xC0, _): masked;
            (10..20, 5..6): ranged;
            (_, 0xFF): any;
            default: accept;
        }
    }
    state zero { meta.path = 1; transition accept; }
    state masked { meta.path = 2; transition accept; }
    state ranged { meta.path = 3; transition accept; }
    state any { meta.path = 4; transition accept; }
}
INGRESS { apply { hdr.h.b = meta.path; std.egress_spec = 1; } }
REST
