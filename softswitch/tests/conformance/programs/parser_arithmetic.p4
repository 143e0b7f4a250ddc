// Sums and slices computed by the parser that decide where it goes.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<16> sum; }
header tail_t { bit<8> value; }
struct headers { h_t h; tail_t tail; }
struct metadata { bit<16> sum; }
PARSE {
    state start {
        packet.extract(hdr.h);
        meta.sum = (bit<16>)hdr.h.a + (bit<16>)hdr.h.b * 3 - 1;
        transition select(meta.sum[3:0]) { 0: tail; 5: tail; default: accept; }
    }
    state tail { packet.extract(hdr.tail); transition accept; }
}
INGRESS { apply { hdr.h.sum = meta.sum; if (hdr.tail.isValid()) { hdr.tail.value = 0; } std.egress_spec = 1; } }
REST
