// What goes back to the workers, and to whom.
control Reply(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action to_sender() {
        standard.egress_spec = standard.ingress_port;
    }

    action to_job() {
        standard.mcast_grp = meta.group;
        meta.to_job = true;
    }

    // The frame turned round; for a multicast RESULT egress sets each member's address over it.
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

    apply {
        hdr.base.present = 0;
        hdr.base.type = FrameType.PENDING;
        if (meta.complete) {
            hdr.base.type = FrameType.RESULT;
        }
        byte_count_t payload = BASE_BYTES + KEYS_BYTES;
#define COUNT_BLOCK(c, next) \
        if (hdr.block[c].isValid()) { \
            hdr.base.present = hdr.base.present | (8w1 << c); \
            payload = payload + BLOCK_BYTES; \
        }
        FOR_EACH_COLUMN(COUNT_BLOCK)
        hdr.udp.bytes = UDP_BYTES + payload;
        hdr.ipv4.total_bytes = IPV4_BYTES + UDP_BYTES + payload;

        turn_round();
        if (meta.verdict == Verdict.DUPLICATE) {
            to_sender();
        } else if (meta.complete) {
            to_job();
        } else {
            mark_to_drop(standard);       // consumed: its words are in the registers
        }
    }
}

// Egress: a replica of a RESULT carries an instance that stands for the rank it is for.
control AddressReply(inout headers_t hdr, in metadata_t meta, inout standard_metadata_t standard) {
    action address_to(mac_address_t dst_mac, ipv4_address_t dst_ip, udp_port_t dst_port,
                      mac_address_t src_mac, ipv4_address_t src_ip) {
        hdr.ethernet.dst_mac = dst_mac;
        hdr.ethernet.src_mac = src_mac;
        hdr.ipv4.dst_ip = dst_ip;
        hdr.ipv4.src_ip = src_ip;
        hdr.udp.dst_port = dst_port;
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
        if (meta.to_job) {
            job_member.apply();
        }
    }
}
