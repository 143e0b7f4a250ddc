// A clone session that cuts its copies.
#include "construct.p4"

header h_t { bit<8> operation; bit<16> bytes; }
struct headers { h_t h; }
struct metadata {}
PARSE_H
INGRESS { apply { if (hdr.h.operation == 1) { clone(CloneType.I2E, 3); } std.egress_spec = 1; } }
EGRESS { apply { hdr.h.bytes = (bit<16>)std.packet_length; } }
NO_VERIFY NO_UPDATE EMIT MAIN
