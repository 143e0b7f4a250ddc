// Each replica of a multicast group carries its instance; several may share a port.
#include "construct.p4"

header h_t { bit<16> group; bit<16> rid; bit<8> port; bit<8> kind; }
ONLY_H
PARSE_H
INGRESS { apply { std.mcast_grp = hdr.h.group; std.egress_spec = 9; } }
EGRESS {
    apply {
        hdr.h.rid = std.egress_rid;
        hdr.h.port = (bit<8>)std.egress_port;
        hdr.h.kind = (bit<8>)std.instance_type;
        if (std.egress_rid == 13) { mark_to_drop(std); }
    }
}
NO_VERIFY NO_UPDATE EMIT MAIN
