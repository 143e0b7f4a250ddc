// The reject state drops nothing in simple_switch: the frame goes on with what was extracted.
#include "construct.p4"

header h_t { bit<8> a; }
header tail_t { bit<16> value; }
struct headers { h_t h; tail_t tail; }
struct metadata {}
PARSE {
    state start { packet.extract(hdr.h); transition select(hdr.h.a) { 0: reject; default: tail; } }
    state tail { packet.extract(hdr.tail); transition accept; }
}
INGRESS {
    apply {
        if (hdr.tail.isValid()) { hdr.tail.value = hdr.tail.value + 1; }
        if (hdr.h.isValid()) { hdr.h.a = hdr.h.a ^ 0x0F; }
        std.egress_spec = 1;
    }
}
REST
