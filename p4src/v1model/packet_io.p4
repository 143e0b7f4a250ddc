// Frames to and from the controller over the CPU port.
control PacketOut(inout headers_t hdr, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = hdr.packet_out.egress_port;
        hdr.packet_out.setInvalid();
    }
}

// HELLO goes to the controller, so often and no more: a port that has used up its rate is heard again when its
// meter says so. A meter without a configuration lets everything through.
control Punt(inout metadata_t meta, inout standard_metadata_t standard) {
    meter(PORTS, MeterType.packets) hello_rate;   // by ingress port

    apply {
        bit<2> color;
        hello_rate.execute_meter((bit<32>)standard.ingress_port, color);
        if (color == V1MODEL_METER_COLOR_RED) {
            meta.drop = Drop.RATE;
        } else {
            standard.egress_spec = CPU_PORT;
        }
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
