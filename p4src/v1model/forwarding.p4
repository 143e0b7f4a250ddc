// An ordinary learning L2 switch, for every frame that is not for the switch itself.
control Forwarding(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action forward(port_t port) {
        standard.egress_spec = port;
    }

    action flood() {
        standard.mcast_grp = FLOOD_GROUP;
        meta.flooded = true;              // egress prunes the copy to the port it came from
    }

    table mac_table {
        key = { hdr.ethernet.dst_mac: exact @name("dst_mac"); }
        actions = { forward; flood; }
        const default_action = flood();
        size = 4096;
    }

    action known() {}

    action learn() {
        digest<mac_learn_t>(1, { hdr.ethernet.src_mac, standard.ingress_port });
    }

    table learned {
        key = {
            hdr.ethernet.src_mac: exact @name("src_mac");
            standard.ingress_port: exact @name("ingress_port");
        }
        actions = { known; learn; }
        const default_action = learn();
        size = 4096;
    }

    apply {
        learned.apply();
        mac_table.apply();
        if (!meta.flooded && standard.egress_spec == standard.ingress_port) {
            mark_to_drop(standard);       // the target is on the segment the frame came from
        }
    }
}

control PruneFlood(in metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (meta.flooded && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}
