// An indirect meter: green until it has rates.
#include "construct.p4"

header h_t { bit<8> index; bit<8> color; }
ONLY_H
PARSE_H
INGRESS {
    meter(4, MeterType.bytes) rate;
    apply { bit<8> color = 9; rate.execute_meter((bit<32>)(hdr.h.index & 3), color); hdr.h.color = color; std.egress_spec = 1; }
}
REST
