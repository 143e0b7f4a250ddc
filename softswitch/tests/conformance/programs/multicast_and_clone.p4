// One frame that is cloned and multicast at once.
#include "construct.p4"

header h_t { bit<8> mode; bit<8> kind; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        if (hdr.h.mode[0:0] == 1) { clone(CloneType.I2E, 4); }
        if (hdr.h.mode[1:1] == 1) { std.mcast_grp = 2; }
        if (hdr.h.mode[2:2] == 1) { mark_to_drop(std); } else { std.egress_spec = 1; }
    }
}
EGRESS { apply { hdr.h.kind = (bit<8>)std.instance_type; } }
NO_VERIFY NO_UPDATE EMIT MAIN
