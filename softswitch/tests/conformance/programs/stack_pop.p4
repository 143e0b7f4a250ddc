// pop_front, also of more than there is.
#include "construct.p4"

header h_t { bit<8> operation; bit<8> index; }
header label_t { bit<7> value; bit<1> last; }
struct headers { h_t h; label_t[4] labels; }
struct metadata {}
PARSE {
    state start { packet.extract(hdr.h); transition labels; }
    state labels {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.last) { 0: labels; default: accept; }
    }
}
INGRESS {
    apply {
        if (hdr.h.operation == 1) { hdr.labels.pop_front(1); }
        if (hdr.h.operation == 2) { hdr.labels.pop_front(2); }
        if (hdr.h.operation == 3) { hdr.labels.pop_front(4); }
        if (hdr.h.operation == 4) { hdr.labels.pop_front(1); hdr.labels.push_front(1); }
        std.egress_spec = 1;
    }
}
REST
