// The validity of a stack element that the frame chooses: p4c writes JSON for it that BMv2 refuses too.
#include "../construct.p4"

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
        bit<8> index = hdr.h.index & 3;
        if (hdr.labels[index].isValid()) {
            hdr.h.operation = (bit<8>)hdr.labels[index].value;
            hdr.labels[index].value = 0x7F;
        }
        std.egress_spec = 1;
    }
}
REST
