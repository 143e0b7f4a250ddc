// A parser that calls another, twice.
#include "construct.p4"

header h_t { bit<8> more; }
struct headers { h_t h; h_t a; h_t b; }
struct metadata { bit<8> count; }
parser One(packet_in packet, out h_t part, inout metadata meta) {
    state start { packet.extract(part); meta.count = meta.count + 1; transition accept; }
}
PARSE {
    One() one;
    state start { meta.count = 0; packet.extract(hdr.h); transition select(hdr.h.more) { 0: accept; default: first; } }
    state first { one.apply(packet, hdr.a, meta); transition select(hdr.h.more) { 1: accept; default: second; } }
    state second { one.apply(packet, hdr.b, meta); transition accept; }
}
INGRESS { apply { hdr.h.more = meta.count; std.egress_spec = 1; } }
REST
