// A stack element chosen by a field of the frame.
#include "construct.p4"

header h_t { bit<8> operation; bit<8> index; }
header label_t { bit<7> value; bit<1> last; }
struct headers { h_t h; label_t[4] labels; }
struct metadata {}
PARSE {
    state start {
        packet.extract(hdr.h);
        packet.extract(hdr.labels.next);
        packet.extract(hdr.labels.next);
        packet.extract(hdr.labels.next);
        packet.extract(hdr.labels.next);
        transition accept;
    }
}
INGRESS {
    apply {
        bit<8> index = hdr.h.index & 3;
        if (std.parser_error == error.NoError) {
            hdr.h.operation = (bit<8>)hdr.labels[index].value;
            hdr.labels[index].value = 0x7F;
        }
        std.egress_spec = 1;
    }
}
REST
