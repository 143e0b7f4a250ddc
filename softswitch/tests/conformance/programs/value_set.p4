// Parser value sets: of one key, and of a struct whose keys match in different ways, between other cases of a select.
#include "construct.p4"

header h_t { bit<8> kind; bit<16> id; bit<8> level; bit<72> wide; bit<8> way; }
struct pair_t {
    @match(exact) bit<8> kind;
    @match(ternary) bit<16> id;
    @match(range) bit<8> level;
    @match(lpm) bit<72> wide;
}
struct headers { h_t h; }
struct metadata {}
PARSE {
    value_set<bit<8>>(4) kinds;
    value_set<pair_t>(4) pairs;
    state start {
        packet.extract(hdr.h);
        transition select(hdr.h.kind) { 1: first; kinds: known; 2: second; default: others; }
    }
    state first { hdr.h.way = 1; transition accept; }
    state second { hdr.h.way = 2; transition accept; }
    state known { hdr.h.way = 3; transition others; }
    state others {
        transition select(hdr.h.kind, hdr.h.id, hdr.h.level, hdr.h.wide) { pairs: paired; default: accept; }
    }
    state paired { hdr.h.way = hdr.h.way | 0x80; transition accept; }
}
INGRESS { apply { std.egress_spec = 1; } }
REST
