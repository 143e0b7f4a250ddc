// truncate cuts the frame that leaves.
#include "construct.p4"

header h_t { bit<8> bytes; bit<8> mode; }
ONLY_H
PARSE_H
INGRESS { apply { if (hdr.h.mode == 1) { truncate((bit<32>)hdr.h.bytes); } std.egress_spec = 1; } }
EGRESS { apply { if (hdr.h.mode == 2) { truncate((bit<32>)hdr.h.bytes); } } }
NO_VERIFY NO_UPDATE EMIT MAIN
