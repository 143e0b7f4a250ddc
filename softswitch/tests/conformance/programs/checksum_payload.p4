// Checksums over a header and everything behind it.
#include "construct.p4"

header h_t { bit<8> kind; bit<8> failed; bit<16> sum; bit<16> fresh; }
ONLY_H
PARSE_H
VERIFY { apply { verify_checksum_with_payload(true, { hdr.h.kind, 8w0 }, hdr.h.sum, HashAlgorithm.csum16); } }
INGRESS { apply { hdr.h.failed = (bit<8>)std.checksum_error; std.egress_spec = 1; } }
NO_EGRESS
UPDATE { apply { update_checksum_with_payload(hdr.h.kind[0:0] == 1, { hdr.h.kind, 8w0 }, hdr.h.fresh, HashAlgorithm.csum16); } }
EMIT MAIN
