// A copy of a stack's last element as a whole: BMv2 ends over p4c's JSON for it.
#include "../construct.p4"

header h_t { bit<8> a; }
struct headers { h_t[3] h; }
struct metadata { h_t copy; }
PARSE { state start { packet.extract(hdr.h.next); meta.copy = hdr.h.last; transition accept; } }
INGRESS { apply { hdr.h[0].a = meta.copy.a; std.egress_spec = 1; } }
REST
