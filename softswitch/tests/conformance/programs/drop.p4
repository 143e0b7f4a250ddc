// mark_to_drop in ingress and egress, taken back and not; it clears the multicast group.
#include "construct.p4"

header h_t { bit<8> mode; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        std.egress_spec = 1;
        if (hdr.h.mode == 1) { mark_to_drop(std); }
        if (hdr.h.mode == 2) { mark_to_drop(std); std.egress_spec = 2; }
        if (hdr.h.mode == 3) { std.egress_spec = 511; }
        if (hdr.h.mode == 6) { std.mcast_grp = 5; mark_to_drop(std); }
        if (hdr.h.mode == 7) { mark_to_drop(std); std.mcast_grp = 5; }
    }
}
EGRESS {
    apply {
        if (hdr.h.mode == 4) { mark_to_drop(std); }
        if (hdr.h.mode == 5) { mark_to_drop(std); std.egress_spec = 3; }
    }
}
NO_VERIFY NO_UPDATE EMIT MAIN
