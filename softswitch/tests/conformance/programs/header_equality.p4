// Two headers compared as a whole.
#include "construct.p4"

header h_t { bit<8> answer; }
header part_t { bit<4> x; bit<12> y; }
struct headers { h_t h; part_t a; part_t b; }
struct metadata {}
PARSE { state start { packet.extract(hdr.h); packet.extract(hdr.a); packet.extract(hdr.b); transition accept; } }
INGRESS {
    apply {
        if (hdr.h.answer == 0x99) { hdr.a.setInvalid(); hdr.b.setInvalid(); }
        if (hdr.h.answer == 0x98) { hdr.a.setInvalid(); }
        hdr.h.answer = 0;
        if (hdr.a == hdr.b) { hdr.h.answer = 1; }
        if (hdr.a != hdr.b) { hdr.h.answer = hdr.h.answer | 2; }
        std.egress_spec = 1;
    }
}
REST
