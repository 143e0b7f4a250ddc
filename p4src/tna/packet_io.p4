// Frames to and from the controller over the CPU port. Neither goes through egress.
control PacketOut(inout headers_t hdr, inout ingress_intrinsic_metadata_for_tm_t to_tm) {
    apply {
        to_tm.ucast_egress_port = hdr.packet_out.egress_port;
        to_tm.bypass_egress = 1;
        hdr.packet_out.setInvalid();
    }
}

// HELLO goes to the controller, so often and no more: a port that has used up its rate is heard again when its
// meter says so. `reply.p4` drops what is beyond the rate.
control Punt(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
             inout ingress_intrinsic_metadata_for_tm_t to_tm) {
    Meter<port_t>(PORTS, MeterType_t.PACKETS) hello_rate;   // by ingress port

    action measure() {
        meta.color = hello_rate.execute(intrinsic.ingress_port);
        to_tm.ucast_egress_port = CPU_PORT;
        to_tm.bypass_egress = 1;
        hdr.bridge.setInvalid();
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = intrinsic.ingress_port;
        hdr.packet_in._pad = 0;
    }

    // A meter takes one of a stage's four ALUs, and there is none to lose beside the tags (slot_state.p4).
    @stage(2) table hello {
        actions = { measure; }
        const default_action = measure();
        size = 1;
    }

    apply {
        hello.apply();
    }
}
