// Frames to and from the controller over the CPU port.
control PacketOut(inout headers_t hdr, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = hdr.packet_out.egress_port;
        hdr.packet_out.setInvalid();
    }
}

control Punt(inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = CPU_PORT;
    }
}

control PacketIn(inout headers_t hdr, in standard_metadata_t standard) {
    apply {
        if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in._pad = 0;
        }
    }
}
