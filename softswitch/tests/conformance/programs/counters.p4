// Indirect counters; an index that is out of bounds counts nowhere.
#include "construct.p4"

header h_t { bit<8> index; }
ONLY_H
PARSE_H
INGRESS {
    counter(8, CounterType.packets_and_bytes) both;
    counter(4, CounterType.packets) packets;
    counter(4, CounterType.bytes) bytes;
    apply {
        both.count((bit<32>)hdr.h.index);
        packets.count((bit<32>)(hdr.h.index & 3));
        bytes.count((bit<32>)(hdr.h.index & 1));
        std.egress_spec = 1;
    }
}
REST
