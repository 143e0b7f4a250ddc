// A header stack: a parser loop, last, lastIndex, push, pop, an index taken from the frame, parser errors.
#include "construct.p4"

header command_t { bit<8> operation; bit<8> index; bit<8> fault; bit<8> count; }
header label_t { bit<7> value; bit<1> bottom; bit<8> ttl; }
struct headers { command_t command; label_t[3] labels; }
struct metadata { bit<32> last; }

error { TtlIsZero }

PARSE {
    state start { packet.extract(hdr.command); transition select(hdr.command.operation) { 9 : accept; default : label; } }
    state label {
        packet.extract(hdr.labels.next);
        verify(hdr.labels.last.ttl != 0, error.TtlIsZero);
        meta.last = hdr.labels.lastIndex;
        transition select(hdr.labels.last.bottom) { 0 : label; 1 : accept; }
    }
}
NO_VERIFY
INGRESS {
    apply {
        hdr.command.count = (bit<8>)meta.last;
        if (std.parser_error == error.NoError) { hdr.command.fault = 0; }
        else if (std.parser_error == error.StackOutOfBounds) { hdr.command.fault = 1; }
        else if (std.parser_error == error.PacketTooShort) { hdr.command.fault = 2; }
        else if (std.parser_error == error.TtlIsZero) { hdr.command.fault = 3; }
        else { hdr.command.fault = 255; }
        if (hdr.command.operation == 1) { hdr.labels.push_front(1); hdr.labels[0].setValid(); hdr.labels[0] = {5, 0, 64}; }
        else if (hdr.command.operation == 2) { hdr.labels.pop_front(1); }
        else if (hdr.command.operation == 3) { hdr.labels[hdr.command.index].ttl = 99; }
        else if (hdr.command.operation == 4) { hdr.labels[1] = hdr.labels[0]; }
        else if (hdr.command.operation == 5) { hdr.labels.pop_front(2); }
        else if (hdr.command.operation == 6) { hdr.labels[0].ttl = hdr.labels[hdr.command.index].ttl; }
        else if (hdr.command.operation == 7) { hdr.labels[0].setInvalid(); }
        else if (hdr.command.operation == 8) { if (hdr.labels[0] == hdr.labels[1]) { hdr.command.fault = 77; } }
        std.egress_spec = 1;
    }
}
NO_EGRESS
NO_UPDATE
EMIT
MAIN
