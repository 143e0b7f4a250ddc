// verify_checksum tells in standard metadata, under a condition.
#include "construct.p4"

header h_t { bit<8> kind; bit<8> failed; bit<16> a; bit<32> b; bit<16> sum; }
ONLY_H
PARSE_H
VERIFY { apply { verify_checksum(hdr.h.kind == 1, { hdr.h.a, hdr.h.b }, hdr.h.sum, HashAlgorithm.csum16); } }
INGRESS { apply { hdr.h.failed = (bit<8>)std.checksum_error; std.egress_spec = 1; } }
NO_EGRESS NO_UPDATE EMIT MAIN
