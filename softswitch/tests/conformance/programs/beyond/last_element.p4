// A copy of a stack's last element as a whole: BMv2 takes p4c's JSON for it, and ends over a frame that gets there.
#include "../construct.p4"

header label_t { bit<7> value; bit<1> more; }
struct headers { label_t[3] labels; }
struct metadata { label_t copy; }
PARSE {
    state start {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.more, hdr.labels.last.value) {
            (1, _): start;
            (0, 1): accept;
            default: copy;
        }
    }
    state copy { meta.copy = hdr.labels.last; transition accept; }
}
INGRESS {
    apply {
        if (meta.copy.isValid()) { hdr.labels[0].value = meta.copy.value; }
        std.egress_spec = 1;
    }
}
REST
