// A loop inside an action, with break and continue; table entries that the program declares.
#include "construct.p4"

header h_t { bit<8> a; bit<8> n; bit<16> sum; bit<8> chosen; bit<8> ranked; }
struct headers { h_t h; }
struct metadata { bit<8> unused; }

PARSE { state start { packet.extract(hdr.h); transition accept; } }
NO_VERIFY
INGRESS {
    action choose(bit<8> value) { hdr.h.chosen = value; }
    action rank(bit<8> value) { hdr.h.ranked = value; }
    action add_up() {
        hdr.h.sum = 0;
        for (bit<8> i = 0; i < hdr.h.n; i = i + 1) {
            if (i == 3) { continue; }
            if (i > 10) { break; }
            hdr.h.sum = hdr.h.sum + (bit<16>)i;
        }
    }
    table declared {
        key = { hdr.h.a : exact; }
        actions = { choose; NoAction; }
        entries = { 1 : choose(5); }
        default_action = NoAction();
    }
    table ranked {
        key = { hdr.h.a : ternary; }
        actions = { rank; NoAction; }
        largest_priority_wins = false;
        entries = { priority = 5 : 1 : rank(7); priority = 10 : 1 &&& 3 : rank(6); }
        default_action = NoAction();
    }
    apply {
        std.egress_spec = 1;
        declared.apply();
        ranked.apply();
        add_up();
    }
}
NO_EGRESS
NO_UPDATE
EMIT
MAIN
