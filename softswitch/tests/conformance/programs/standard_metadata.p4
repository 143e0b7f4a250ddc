// Ports, length and instance type as ingress and egress see them.
#include "construct.p4"

header h_t { bit<16> in_port; bit<16> in_bytes; bit<16> out_port; bit<16> out_bytes; bit<32> kind; }
header extra_t { bit<24> value; }
struct headers { h_t h; extra_t extra; }
struct metadata {}
PARSE_H
INGRESS {
    apply {
        hdr.h.in_port = (bit<16>)std.ingress_port;
        hdr.h.in_bytes = (bit<16>)std.packet_length;
        hdr.extra.setValid();
        hdr.extra.value = 0xABCDEF;
        std.egress_spec = std.ingress_port ^ 1;
    }
}
EGRESS {
    apply {
        hdr.h.out_port = (bit<16>)std.egress_port;
        hdr.h.out_bytes = (bit<16>)std.packet_length;
        hdr.h.kind = std.instance_type;
    }
}
NO_VERIFY NO_UPDATE EMIT MAIN
