// A varbit field as long as another field says; too long for it is HeaderTooShort.
#include "construct.p4"

header h_t { bit<8> words; bit<8> fault; }
header options_t { varbit<64> data; }
struct headers { h_t h; options_t options; }
struct metadata {}
PARSE {
    state start { packet.extract(hdr.h); packet.extract(hdr.options, (bit<32>)hdr.h.words << 4); transition accept; }
}
INGRESS {
    apply {
        if (std.parser_error == error.HeaderTooShort) { hdr.h.fault = 1; }
        if (std.parser_error == error.PacketTooShort) { hdr.h.fault = 2; }
        if (hdr.h.fault == 0x80) { hdr.options.setInvalid(); }
        std.egress_spec = 1;
    }
}
REST
