// Tables that follow one another on hit and on miss.
#include "construct.p4"

header h_t { bit<8> key; bit<8> path; }
ONLY_H
PARSE_H
INGRESS {
    action go(bit<8> next) { hdr.h.path = hdr.h.path | next; hdr.h.key = hdr.h.key + 1; }
    table one { key = { hdr.h.key: exact @name("key"); } actions = { go; NoAction; } default_action = NoAction(); }
    table two { key = { hdr.h.key: exact @name("key"); } actions = { go; NoAction; } default_action = go(0x40); }
    table four { key = { hdr.h.key: exact @name("key"); } actions = { go; NoAction; } default_action = go(0x20); }
    table three { key = { hdr.h.key: exact @name("key"); } actions = { go; NoAction; } default_action = go(0x80); }
    apply { if (one.apply().hit) { two.apply(); } else if (!four.apply().hit) { three.apply(); } std.egress_spec = 1; }
}
REST
