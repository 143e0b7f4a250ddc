// verify in the parser, with an error of the program and parsing that ends there.
#include "construct.p4"

error { Odd, Large }
header h_t { bit<8> a; bit<8> fault; }
header tail_t { bit<8> value; }
struct headers { h_t h; tail_t tail; }
struct metadata {}
PARSE {
    state start {
        packet.extract(hdr.h);
        verify(hdr.h.a[0:0] == 0, error.Odd);
        verify(hdr.h.a < 100, error.Large);
        packet.extract(hdr.tail);
        transition accept;
    }
}
INGRESS {
    apply {
        hdr.h.fault = 0;
        if (std.parser_error == error.Odd) { hdr.h.fault = 1; }
        else if (std.parser_error == error.Large) { hdr.h.fault = 2; }
        else if (std.parser_error != error.NoError) { hdr.h.fault = 3; }
        if (hdr.tail.isValid()) { hdr.tail.value = 0xEE; }
        std.egress_spec = 1;
    }
}
REST
