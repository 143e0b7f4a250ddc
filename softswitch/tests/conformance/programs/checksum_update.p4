// update_checksum after egress, with what egress wrote.
#include "construct.p4"

header h_t { bit<8> kind; bit<8> x; bit<16> a; bit<32> b; bit<16> sum; bit<16> xored; }
ONLY_H
PARSE_H
NO_VERIFY
INGRESS { apply { std.egress_spec = 1; } }
EGRESS { apply { hdr.h.a = hdr.h.a + 1; } }
UPDATE {
    apply {
        update_checksum(hdr.h.kind != 0, { hdr.h.a, hdr.h.b, hdr.h.x, 8w7 }, hdr.h.sum, HashAlgorithm.csum16);
        update_checksum(hdr.h.kind == 2, { hdr.h.a, hdr.h.sum }, hdr.h.xored, HashAlgorithm.xor16);
    }
}
EMIT MAIN
