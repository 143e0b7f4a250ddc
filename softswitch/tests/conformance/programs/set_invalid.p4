// Headers taken away and added; deparsing follows the order of emit.
#include "construct.p4"

header h_t { bit<8> flags; }
header part_t { bit<8> value; }
struct headers { part_t front; h_t h; part_t a; part_t b; }
struct metadata {}
PARSE { state start { packet.extract(hdr.h); packet.extract(hdr.a); packet.extract(hdr.b); transition accept; } }
INGRESS {
    apply {
        if (hdr.h.flags[0:0] == 1) { hdr.front.setValid(); hdr.front.value = 0xF0; }
        if (hdr.h.flags[1:1] == 1) { hdr.a.setInvalid(); }
        if (hdr.h.flags[2:2] == 1) { hdr.b.setInvalid(); }
        if (hdr.h.flags[3:3] == 1) { hdr.h.setInvalid(); }
        std.egress_spec = 1;
    }
}
REST
