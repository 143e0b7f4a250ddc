// A table that no frame reaches: P4Info has it, and p4c leaves it out of the program.
#include "construct.p4"

header h_t { bit<8> key; bit<8> value; }
ONLY_H
PARSE_H
INGRESS {
    action set(bit<8> value) { hdr.h.value = value; }
    table reached { key = { hdr.h.key: exact @name("key"); } actions = { set; NoAction; } }
    table unreached { key = { hdr.h.key: exact @name("key"); } actions = { set; NoAction; } }
    apply {
        std.egress_spec = 1;
        reached.apply();
        bit<8> always = 2;
        if (always < 5) { return; } else { unreached.apply(); }
    }
}
REST
