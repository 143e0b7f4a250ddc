// Headers of the controller on the CPU port: packet-in and packet-out.
#include "construct.p4"

@controller_header("packet_in") header packet_in_t { bit<9> ingress_port; bit<3> reason; bit<4> _pad; }
@controller_header("packet_out") header packet_out_t { bit<9> egress_port; bit<7> _pad; }
header h_t { bit<8> command; }
struct headers { packet_in_t packet_in; packet_out_t packet_out; h_t h; }
struct metadata {}
PARSE {
    state start { transition select(std.ingress_port) { 510: from_cpu; default: h; } }
    state from_cpu { packet.extract(hdr.packet_out); transition h; }
    state h { packet.extract(hdr.h); transition accept; }
}
INGRESS {
    apply {
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            std.egress_spec = 510;
        }
    }
}
EGRESS {
    apply {
        if (std.egress_port == 510) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.reason = hdr.h.command[2:0];
            hdr.packet_in._pad = 0;
        }
    }
}
NO_VERIFY NO_UPDATE EMIT MAIN
