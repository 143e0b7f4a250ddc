// The parser looks at standard metadata.
#include "construct.p4"

header h_t { bit<16> value; }
header tail_t { bit<8> value; }
struct headers { h_t h; tail_t tail; }
struct metadata {}
PARSE {
    state start { transition select(std.ingress_port) { 1: h; 2: tail; default: accept; } }
    state h { packet.extract(hdr.h); transition accept; }
    state tail { packet.extract(hdr.tail); transition accept; }
}
INGRESS {
    apply {
        if (hdr.h.isValid()) { hdr.h.value = hdr.h.value + 1; }
        if (hdr.tail.isValid()) { hdr.tail.value = hdr.tail.value + 2; }
        std.egress_spec = std.ingress_port + 1;
    }
}
REST
