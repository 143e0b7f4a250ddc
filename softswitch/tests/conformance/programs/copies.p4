// Clones, resubmit, recirculate, truncate and multicast, with metadata that does and does not survive.
#include "construct.p4"

header command_t { bit<8> operation; bit<8> kind; bit<8> kept; bit<8> lost; bit<8> rid; bit<16> length; bit<8> passes; }
header extra_t { bit<16> value; }
struct headers { command_t command; extra_t extra; }
struct metadata { @field_list(1) bit<8> kept; bit<8> lost; }

PARSE { state start { packet.extract(hdr.command); transition accept; } }
NO_VERIFY
INGRESS {
    apply {
        hdr.command.passes = hdr.command.passes + 1;
        std.egress_spec = 1;
        if (std.instance_type == 0) {
            meta.lost = 5;
            if (hdr.command.operation == 1) { meta.kept = 7; clone_preserving_field_list(CloneType.I2E, 5, 1); }
            else if (hdr.command.operation == 2) { meta.kept = 8; resubmit_preserving_field_list(1); }
            else if (hdr.command.operation == 5) { clone(CloneType.I2E, 5); mark_to_drop(std); }
            else if (hdr.command.operation == 6) { truncate((bit<32>)10); }
            else if (hdr.command.operation == 7) { std.mcast_grp = 2; }
            else if (hdr.command.operation == 8) { hdr.extra.setValid(); hdr.extra.value = 0xBEEF; }
        } else {
            hdr.command.kept = meta.kept;
            hdr.command.lost = meta.lost;
            hdr.command.kind = (bit<8>)std.instance_type;
            std.egress_spec = 3;
        }
    }
}
EGRESS {
    apply {
        hdr.command.length = (bit<16>)std.packet_length;
        if (std.instance_type == 0) {
            if (hdr.command.operation == 3) { meta.kept = 9; clone_preserving_field_list(CloneType.E2E, 6, 1); }
            else if (hdr.command.operation == 4 && hdr.command.passes == 1) { meta.kept = 10; recirculate_preserving_field_list(1); }
        } else {
            hdr.command.kind = (bit<8>)std.instance_type;
            hdr.command.kept = meta.kept;
            hdr.command.lost = meta.lost;
            hdr.command.rid = (bit<8>)std.egress_rid;
        }
    }
}
NO_UPDATE
EMIT
MAIN
