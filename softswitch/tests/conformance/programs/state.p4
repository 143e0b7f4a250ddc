// Registers with indices out of bounds, signed cells, meters, log_msg, assert, statements inside actions.
#include "construct.p4"

header command_t { bit<8> operation; bit<8> index; bit<16> value; bit<16> result; int<8> small; bit<8> color; }
struct headers { command_t command; }
struct metadata { bit<2> color; }

PARSE { state start { packet.extract(hdr.command); transition accept; } }
NO_VERIFY
INGRESS {
    register<bit<16>>(5) cells;
    register<int<8>>(4) signed_cells;
    meter(4, MeterType.packets) indirect;
    direct_meter<bit<2>>(MeterType.bytes) direct;
    action write() { cells.write((bit<32>)hdr.command.index, hdr.command.value); }
    action read() { cells.read(hdr.command.result, (bit<32>)hdr.command.index); }
    action branch() {
        if (hdr.command.value > 10) {
            hdr.command.result = 1;
            if (hdr.command.value > 20) { return; }
            hdr.command.result = 2;
        } else { hdr.command.result = 3; }
        hdr.command.result = hdr.command.result + 100;
    }
    action metered() { direct.read(meta.color); hdr.command.color = (bit<8>)meta.color; }
    table per_index {
        key = { hdr.command.index : exact; }
        actions = { metered; NoAction; }
        default_action = NoAction();
        meters = direct;
    }
    apply {
        std.egress_spec = 1;
        if (hdr.command.operation == 1) { write(); }
        else if (hdr.command.operation == 2) { read(); }
        else if (hdr.command.operation == 3) { branch(); }
        else if (hdr.command.operation == 4) {
            signed_cells.write((bit<32>)hdr.command.index, hdr.command.small);
            int<8> again;
            signed_cells.read(again, (bit<32>)hdr.command.index);
            if (again < 0) { hdr.command.result = 0xFFFF; } else { hdr.command.result = 1; }
        }
        else if (hdr.command.operation == 5) { indirect.execute_meter((bit<32>)hdr.command.index, meta.color); hdr.command.color = (bit<8>)meta.color; }
        else if (hdr.command.operation == 6) { per_index.apply(); }
        else if (hdr.command.operation == 7) { log_msg("value is {} of {}", {hdr.command.value, hdr.command.index}); }
        else if (hdr.command.operation == 8) { assert(hdr.command.value == 1); }
    }
}
NO_EGRESS
NO_UPDATE
EMIT
MAIN
