// Entries that the program declares without const: the control plane may add to them and change them.
#include "construct.p4"

header h_t { bit<8> key; bit<8> value; }
ONLY_H
PARSE_H
INGRESS {
    action set(bit<8> value) { hdr.h.value = value; }
    table exactly {
        key = { hdr.h.key: exact @name("key"); }
        actions = { set; NoAction; }
        default_action = set(0xEE);
        size = 4;
        entries = { 1: set(11); 2: set(12); }
    }
    table masked {
        key = { hdr.h.key: ternary @name("key"); }
        actions = { set; NoAction; }
        default_action = NoAction();
        size = 8;
        entries = {
            const priority = 30: 3 &&& 0x0F: set(31);
            priority = 20: 0x13: set(32);
            priority = 10: 0x20 &&& 0xF0: set(33);
        }
    }
    apply {
        std.egress_spec = 1;
        exactly.apply();
        masked.apply();
    }
}
REST
