// What goes back to the children, or on to the parent, and to whom.
control Reply(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action to_sender() {
        standard.egress_spec = standard.ingress_port;
    }

    action to_group() {
        standard.mcast_grp = meta.group;
        meta.to_group = true;
    }

    // The frame turned round; for a group egress sets each replica's address over it.
    action turn_round() {
        ipv4_address_t switch_ip = hdr.ipv4.dst_ip;
        hdr.ethernet.dst_mac = hdr.ethernet.src_mac;
        hdr.ethernet.src_mac = meta.switch_mac;
        hdr.ipv4.dst_ip = hdr.ipv4.src_ip;
        hdr.ipv4.src_ip = switch_ip;
        hdr.ipv4.ttl = 64;
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = AGGREGATION_PORT;
        hdr.udp.checksum = 0;             // none: optional in IPv4, and it would cover every block
    }

    // Which columns carry a block, and with them every length.
    action describe(column_bitmap_t columns) {
        hdr.base.present = columns;
        hdr.udp.bytes = UDP_BYTES + BASE_BYTES + GUARD_BYTES + KEYS_BYTES + PRESENT_BYTES;
        hdr.ipv4.total_bytes = IPV4_BYTES + hdr.udp.bytes;
    }

    apply {
        if (!meta.from_parent && !meta.complete && meta.verdict != Verdict.DUPLICATE) {
            mark_to_drop(standard);       // consumed: its words are in the registers
        } else {
            if (meta.from_parent) {
                hdr.base.level = hdr.base.level + 1;
            } else if (!meta.complete) {
                hdr.base.type = FrameType.PENDING;
                describe(0);
            } else {
                describe(meta.columns);
                if (meta.to_parent) {
                    hdr.base.seen = 0;    // a contribution like any other
                } else {
                    hdr.base.type = FrameType.RESULT;
                }
            }
            // Once for all replicas: the secret, which is each rank's own, is not in it.
            hash(hdr.guard.checksum, HashAlgorithm.csum16, 16w0, HEADER_CHECKED_FIELDS, 32w0x10000);
            turn_round();
            if (meta.verdict == Verdict.DUPLICATE && !(meta.complete && meta.to_parent)) {
                to_sender();              // with the secret that it came with
            } else {
                to_group();
            }
        }
    }
}

// Egress: a replica carries an instance that says which child it is for; one beyond all children stands for the parent.
control AddressReply(inout headers_t hdr, in metadata_t meta, inout standard_metadata_t standard) {
    action address_to(mac_address_t dst_mac, ipv4_address_t dst_ip, udp_port_t dst_port,
                      mac_address_t src_mac, ipv4_address_t src_ip, secret_t secret) {
        hdr.ethernet.dst_mac = dst_mac;
        hdr.ethernet.src_mac = src_mac;
        hdr.ipv4.dst_ip = dst_ip;
        hdr.ipv4.src_ip = src_ip;
        hdr.udp.dst_port = dst_port;
        hdr.guard.secret = secret;
    }

    action nobody() {
        mark_to_drop(standard);
    }

    table job_member {
        key = {
            hdr.base.job: exact @name("job");
            standard.egress_rid: exact @name("rank");
        }
        actions = { address_to; nobody; }
        const default_action = nobody();
        size = 4096;
    }

    apply {
        if (meta.to_group) {
            job_member.apply();
        }
    }
}
