// A key in a stack element that the frame chooses: p4c writes JSON for it that BMv2 refuses too.
#include "../construct.p4"

header h_t { bit<8> index; bit<8> b; }
header label_t { bit<8> value; }
struct headers { h_t h; label_t[2] labels; }
struct metadata {}
PARSE {
    state start { packet.extract(hdr.h); packet.extract(hdr.labels.next); packet.extract(hdr.labels.next); transition accept; }
}
INGRESS {
    table t { key = { hdr.labels[hdr.h.index].value: exact @name("key"); } actions = { NoAction; } }
    apply { t.apply(); std.egress_spec = 1; }
}
REST
