// What apply() tells: hit, miss, and which action ran.
#include "construct.p4"

header h_t { bit<8> key; bit<8> hit; bit<8> run; }
ONLY_H
PARSE_H
INGRESS {
    action red() {}
    action blue(bit<8> value) { hdr.h.run = value; }
    table first { key = { hdr.h.key: exact @name("key"); } actions = { red; blue; } default_action = red(); }
    table second { key = { hdr.h.key: exact @name("key"); } actions = { red; blue; } default_action = blue(5); }
    apply {
        if (first.apply().hit) { hdr.h.hit = 1; } else { hdr.h.hit = 2; }
        switch (second.apply().action_run) {
            red: { hdr.h.run = 0x0A; }
            blue: { hdr.h.run = hdr.h.run + 0x10; }
        }
        std.egress_spec = 1;
    }
}
REST
