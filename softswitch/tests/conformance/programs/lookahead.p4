// lookahead reads without taking.
#include "construct.p4"

header h_t { bit<8> kind; bit<8> value; }
header other_t { bit<8> kind; bit<24> value; }
struct headers { h_t h; other_t other; }
struct metadata { bit<16> seen; }
PARSE {
    state start {
        meta.seen = packet.lookahead<bit<16>>();
        transition select(packet.lookahead<bit<4>>()) { 0xA: other; default: plain; }
    }
    state plain { packet.extract(hdr.h); transition accept; }
    state other { packet.extract(hdr.other); transition accept; }
}
INGRESS {
    apply {
        if (hdr.h.isValid()) { hdr.h.kind = meta.seen[7:0]; }
        if (hdr.other.isValid()) { hdr.other.value = (bit<24>)meta.seen; }
        std.egress_spec = 1;
    }
}
REST
