// Every kind of match with const entries, hit and miss, action_run and exit.
#include "construct.p4"

header keys_t { bit<8> table_; bit<8> a; bit<16> b; bit<32> c; bit<8> result; bit<8> trace; }
struct headers { keys_t keys; }
struct metadata { bit<8> unused; }

PARSE { state start { packet.extract(hdr.keys); transition accept; } }
NO_VERIFY
INGRESS {
    action set(bit<8> value) { hdr.keys.result = value; }
    action none() { hdr.keys.result = 0xFF; }
    action stop(bit<8> value) { hdr.keys.result = value; exit; }
    table exact_ {
        key = { hdr.keys.a : exact; hdr.keys.b : exact; }
        actions = { set; none; }
        default_action = none();
        const entries = { (1, 2) : set(10); (1, 3) : set(11); }
    }
    table lpm_ {
        key = { hdr.keys.c : lpm; hdr.keys.a : exact; }
        actions = { set; none; }
        default_action = none();
        const entries = {
            (0x0A000000 &&& 0xFF000000, 1) : set(20);
            (0x0A0B0000 &&& 0xFFFF0000, 1) : set(21);
            (0x0A0B0C0D, 1) : set(22);
            (_, 2) : set(23);
        }
    }
    table ternary_ {
        key = { hdr.keys.a : ternary; hdr.keys.b : ternary; }
        actions = { set; none; }
        default_action = none();
        const entries = {
            (0x10 &&& 0xF0, 0x0001 &&& 0x0001) : set(30);
            (0x12, _) : set(31);
            (0x10 &&& 0xF0, _) : set(32);
        }
    }
    table range_ {
        key = { hdr.keys.b : range; hdr.keys.c : ternary; }
        actions = { set; none; }
        default_action = none();
        const entries = {
            (100..200, 0 &&& 1) : set(40);
            (150..300, _) : set(41);
            (5, _) : set(42);
        }
    }
    table optional_ {
        key = { hdr.keys.a : optional; hdr.keys.b : optional; }
        actions = { set; none; }
        default_action = none();
        const entries = { (1, 2) : set(50); (_, 2) : set(51); (3, _) : set(52); }
    }
    table switched {
        key = { hdr.keys.a : exact; }
        actions = { set; none; stop; }
        default_action = none();
        const entries = { 1 : set(60); 2 : stop(61); }
    }
    apply {
        std.egress_spec = 1;
        if (hdr.keys.table_ == 1) { if (exact_.apply().hit) { hdr.keys.trace = 1; } else { hdr.keys.trace = 2; } }
        else if (hdr.keys.table_ == 2) { lpm_.apply(); }
        else if (hdr.keys.table_ == 3) { ternary_.apply(); }
        else if (hdr.keys.table_ == 4) { range_.apply(); }
        else if (hdr.keys.table_ == 5) { optional_.apply(); }
        else if (hdr.keys.table_ == 6) {
            switch (switched.apply().action_run) {
                set : { hdr.keys.trace = 3; }
                none : { hdr.keys.trace = 4; }
            }
            hdr.keys.trace = hdr.keys.trace + 0x10;
        }
        hdr.keys.trace = hdr.keys.trace + 0x80;
    }
}
NO_EGRESS
NO_UPDATE
EMIT
MAIN
