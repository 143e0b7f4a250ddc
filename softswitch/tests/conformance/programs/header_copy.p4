// Copying a header copies its validity.
#include "construct.p4"

header h_t { bit<8> operation; }
header part_t { bit<16> value; }
struct headers { h_t h; part_t a; part_t b; }
struct metadata {}
PARSE {
    state start { packet.extract(hdr.h); transition select(hdr.h.operation) { 0: accept; default: a; } }
    state a { packet.extract(hdr.a); transition select(hdr.h.operation) { 1: accept; default: b; } }
    state b { packet.extract(hdr.b); transition accept; }
}
INGRESS {
    apply {
        if (hdr.h.operation < 3) { hdr.b = hdr.a; }
        else if (hdr.h.operation == 3) { hdr.a = hdr.b; }
        else { part_t t = hdr.a; hdr.a = hdr.b; hdr.b = t; }
        std.egress_spec = 1;
    }
}
REST
