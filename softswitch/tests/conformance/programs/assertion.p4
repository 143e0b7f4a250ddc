// assert, assume and log_msg that hold do nothing.
#include "construct.p4"

header h_t { bit<8> a; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        assert(hdr.h.isValid() || std.packet_length == 0);
        assume(std.egress_spec == 0);
        log_msg("a is {}", { hdr.h.a });
        hdr.h.a = hdr.h.a + 1;
        std.egress_spec = 1;
    }
}
REST
