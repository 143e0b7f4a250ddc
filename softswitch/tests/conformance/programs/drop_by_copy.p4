// mark_to_drop by way of a parameter, and on copies that go back or do not.
#include "construct.p4"

header h_t { bit<8> mode; bit<8> key; }
struct headers { h_t h; }
struct metadata { bit<9> port; bit<16> group; }
PARSE_H
action drop_it(inout standard_metadata_t target) { mark_to_drop(target); }
INGRESS {
    action send(bit<9> port) { std.egress_spec = port; }
    table choose {
        key = { hdr.h.key: exact @name("key"); }
        actions = { send; drop_it(std); }
        default_action = drop_it(std);
    }
    apply {
        standard_metadata_t copy = std;
        std.egress_spec = 1;
        std.mcast_grp = 3;
        if (hdr.h.mode == 0) { choose.apply(); }
        if (hdr.h.mode == 1) { drop_it(std); }
        if (hdr.h.mode == 2) { mark_to_drop(copy); }
        if (hdr.h.mode == 3) { copy = std; mark_to_drop(copy); std = copy; }
        if (hdr.h.mode == 4) { drop_it(copy); std.egress_spec = copy.egress_spec; }
        if (hdr.h.mode == 5) { mark_to_drop(copy); std.mcast_grp = copy.mcast_grp; }
        if (hdr.h.mode == 6) { std.mcast_grp = 0; drop_it(copy); meta.port = copy.egress_spec; std.egress_spec = meta.port - 509; }
    }
}
EGRESS {
    apply {
        standard_metadata_t copy = std;
        if (hdr.h.key == 7) { drop_it(copy); }
        if (hdr.h.key == 8) { drop_it(std); }
        hdr.h.key = (bit<8>)copy.egress_port;
    }
}
NO_VERIFY NO_UPDATE EMIT MAIN
