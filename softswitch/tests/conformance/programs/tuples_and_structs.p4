// Structs and tuples as values.
#include "construct.p4"

header h_t { bit<8> a; bit<16> b; bit<8> answer; }
struct pair_t { bit<8> x; bit<16> y; }
struct headers { h_t h; }
struct metadata { pair_t one; pair_t two; }
PARSE_H
INGRESS {
    apply {
        meta.one = { hdr.h.a, hdr.h.b };
        meta.two = meta.one;
        meta.two.x = meta.two.x & 0x0F;
        hdr.h.answer = 0;
        if (meta.one == meta.two) { hdr.h.answer = 1; }
        tuple<bit<8>, bit<16>> t = { meta.two.x, 16w5 };
        if (t == { hdr.h.a, hdr.h.b }) { hdr.h.answer = hdr.h.answer | 2; }
        hdr.h.b = meta.two.y + (bit<16>)meta.two.x;
        std.egress_spec = 1;
    }
}
REST
