// The hash xor16 over fields of several widths.
#include "construct.p4"

header h_t { bit<4> a; bit<12> b; bit<32> c; bit<48> d; bit<32> answer; bit<32> bounded; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        bit<32> all;
        bit<32> some;
        hash(all, HashAlgorithm.xor16, 32w0, { hdr.h.a, hdr.h.b, hdr.h.c, hdr.h.d }, 64w0x100000000);
        hash(some, HashAlgorithm.xor16, 32w100, { hdr.h.c, hdr.h.b, hdr.h.a }, 32w37);
        hdr.h.answer = all;
        hdr.h.bounded = some;
        std.egress_spec = 1;
    }
}
REST
