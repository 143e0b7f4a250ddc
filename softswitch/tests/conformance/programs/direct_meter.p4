// A direct meter: green until it has rates.
#include "construct.p4"

header h_t { bit<8> key; bit<8> color; }
struct headers { h_t h; }
struct metadata { bit<8> color; }
PARSE_H
INGRESS {
    direct_meter<bit<8>>(MeterType.packets) rate;
    action meter_it() { rate.read(meta.color); }
    table keys {
        key = { hdr.h.key: exact @name("key"); }
        actions = { meter_it; NoAction; }
        default_action = NoAction();
        meters = rate;
    }
    apply { meta.color = 7; keys.apply(); hdr.h.color = meta.color; std.egress_spec = 1; }
}
REST
