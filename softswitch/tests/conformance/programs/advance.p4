// advance skips bits that are lost to the deparser.
#include "construct.p4"

header h_t { bit<8> skip; }
header tail_t { bit<16> value; }
struct headers { h_t h; tail_t tail; }
struct metadata {}
PARSE {
    state start { packet.extract(hdr.h); packet.advance((bit<32>)(hdr.h.skip & 3) << 3); packet.extract(hdr.tail); transition accept; }
}
INGRESS { apply { if (hdr.tail.isValid()) { hdr.tail.value = ~hdr.tail.value; } std.egress_spec = 1; } }
REST
