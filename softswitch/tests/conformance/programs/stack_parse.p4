// A stack that the parser fills until a bit says stop; one label too many is StackOutOfBounds.
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
        hdr.h.operation = 0;
        if (std.parser_error == error.StackOutOfBounds) { hdr.h.operation = 1; }
        if (std.parser_error == error.PacketTooShort) { hdr.h.operation = 2; }
        std.egress_spec = 1;
    }
}
REST
