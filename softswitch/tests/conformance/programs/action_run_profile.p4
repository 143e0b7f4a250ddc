// What follows a table with an action profile depends on the action of the member that ran.
#include "construct.p4"

header h_t { bit<8> a; bit<8> b; bit<8> trace; }
ONLY_H
PARSE_H
INGRESS {
    action send(bit<9> port) { std.egress_spec = port; }
    action mark(bit<8> value) { hdr.h.b = value; std.egress_spec = 1; }
    table t {
        key = { hdr.h.a: exact; }
        actions = { send; mark; }
        @name("members") implementation = action_profile(4);
    }
    apply {
        switch (t.apply().action_run) {
            send: { hdr.h.trace = 1; }
            mark: { hdr.h.trace = hdr.h.trace + 2; }
            default: { hdr.h.trace = 3; std.egress_spec = 2; }
        }
    }
}
REST
