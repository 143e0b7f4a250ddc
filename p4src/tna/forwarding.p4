// An ordinary learning L2 switch, for every frame that is not for the switch itself.
control Forwarding(inout headers_t hdr, in ingress_intrinsic_metadata_t intrinsic,
                   inout ingress_intrinsic_metadata_for_deparser_t to_deparser,
                   inout ingress_intrinsic_metadata_for_tm_t to_tm) {
    action forward(port_t port) {
        to_tm.ucast_egress_port = port;
        to_tm.bypass_egress = 1;
        hdr.bridge.setInvalid();
    }

    action flood() {
        to_tm.mcast_grp_a = FLOOD_GROUP;
        hdr.bridge.onward = Onward.FLOOD; // egress prunes the copy to the port it came from
    }

    table mac_table {
        key = { hdr.ethernet.dst_mac: exact @name("dst_mac"); }
        actions = { forward; flood; }
        const default_action = flood();
        size = 4096;
    }

    action known() {}

    action learn() {
        to_deparser.digest_type = MAC_LEARN;
    }

    table learned {
        key = {
            hdr.ethernet.src_mac: exact @name("src_mac");
            intrinsic.ingress_port: exact @name("ingress_port");
        }
        actions = { known; @defaultonly learn; }
        const default_action = learn();
        size = 4096;
    }

    apply {
        learned.apply();
        mac_table.apply();
        if (to_tm.bypass_egress == 1 && to_tm.ucast_egress_port == intrinsic.ingress_port) {
            to_deparser.drop_ctl = DROP_FRAME;   // the target is on the segment the frame came from
        }
    }
}

control PruneFlood(in egress_headers_t hdr, in egress_intrinsic_metadata_t intrinsic,
                   inout egress_intrinsic_metadata_for_deparser_t to_deparser) {
    apply {
        if (hdr.bridge.onward == Onward.FLOOD && intrinsic.egress_port == hdr.bridge.ingress_port) {
            to_deparser.drop_ctl = DROP_FRAME;
        }
    }
}
