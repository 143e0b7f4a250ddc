// Egress tables and rewrites by the port that a frame leaves at.
#include "construct.p4"

header h_t { bit<48> mac; bit<8> port; }
ONLY_H
PARSE_H
INGRESS { apply { std.egress_spec = (bit<9>)hdr.h.port; } }
EGRESS {
    action rewrite(bit<48> mac) { hdr.h.mac = mac; }
    action drop() { mark_to_drop(std); }
    table by_port {
        key = { std.egress_port: exact @name("port"); }
        actions = { rewrite; drop; NoAction; }
        default_action = NoAction();
    }
    apply { by_port.apply(); }
}
NO_VERIFY NO_UPDATE EMIT MAIN
