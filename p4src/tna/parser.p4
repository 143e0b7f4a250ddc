// Bytes to headers and back, for both directions.
#define COLUMN_STATE(c) JOIN(column_, c)

parser MainParser(packet_in packet, out headers_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t intrinsic) {
    Checksum() ipv4_checksum;
    Checksum() header_checksum;

    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        meta.target_ip = 0;
        meta.source_ip = 0;
        meta.ipv4_fault = false;
        meta.header_fault = false;
        meta.to_switch = 0;
        meta.own_ip = 0;
        meta.own_mac = 0;
        meta.form = (bit<8>)Drop.NOT_SERVED;
        meta.length_right = 0;
        meta.admitted = 0;
        meta.from_parent = 0;
        meta.to_parent = 0;
        meta.epoch_off = 0;
        meta.over = 0;
        meta.stale = 0;
        meta.replies = 0;
        meta.pending = 0;
        meta.color = 0;
        transition select(intrinsic.ingress_port) {
            CPU_PORT: from_cpu;
            default: ethernet;
        }
    }

    state from_cpu {
        packet.extract(hdr.packet_out);
        transition accept;                // the frame behind it leaves as it is
    }

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_ARP: arp;
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state arp {
        packet.extract(hdr.arp);
        meta.target_ip = hdr.arp.target_ip;
        meta.source_ip = hdr.arp.sender_ip;
        transition accept;
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        meta.target_ip = hdr.ipv4.dst_ip;
        meta.source_ip = hdr.ipv4.src_ip;
        ipv4_checksum.add(hdr.ipv4);
        meta.ipv4_fault = ipv4_checksum.verify();
        transition select(hdr.ipv4.version_ihl, hdr.ipv4.more_and_offset, hdr.ipv4.protocol) {
            (0x45, 0, PROTOCOL_UDP): udp;
            (0x45, 0, PROTOCOL_ICMP): icmp;
            default: accept;
        }
    }

    state icmp {
        packet.extract(hdr.icmp);
        transition accept;
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            AGGREGATION_PORT: base;
            default: accept;
        }
    }

    state base {
        packet.extract(hdr.base);
        header_checksum.add(hdr.base);
        transition select(hdr.base.version, hdr.base.type) {
            (WIRE_VERSION, FrameType.CONTRIBUTE): guard;
            (WIRE_VERSION, FrameType.RESULT): guard;
            (WIRE_VERSION, FrameType.PENDING): guard;
            (WIRE_VERSION, FrameType.HELLO): hello;
            default: accept;
        }
    }

    state hello {
        packet.extract(hdr.hello);
        transition trailer;
    }

    // The secret is not in the checksum.
    state guard {
        packet.extract(hdr.guard);
        header_checksum.add({ hdr.guard.check, hdr.guard.checksum });
        transition keys;
    }

    state keys {
        packet.extract(hdr.keys);
        header_checksum.add(hdr.keys);
        meta.header_fault = header_checksum.verify();
        transition column_0;
    }

    // column_c extracts block c if `present` says so, and goes on to column c + 1. All of them compare the whole byte, so that
    // it stays in one match register: a bit each would need one each, and the chip has four bytes of them.
#define PARSE_COLUMN(c, next) \
    state column_##c { \
        transition select(hdr.base.present) { \
            1 << c &&& 1 << c: block_##c; \
            default: column_##next; \
        } \
    } \
    state block_##c { \
        packet.extract(hdr.block_##c); \
        transition column_##next; \
    }
    FOR_EACH_COLUMN(PARSE_COLUMN)

    state COLUMN_STATE(COLUMNS) {
        transition trailer;
    }

    state trailer {
        packet.extract(hdr.trailer);
        transition accept;
    }
}

control MainDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                     in ingress_intrinsic_metadata_for_deparser_t to_deparser,
                     in ingress_intrinsic_metadata_t intrinsic) {
    Checksum() header_checksum;
    Digest<mac_learn_t>(MAC_LEARN) mac_learn;

    apply {
        if (to_deparser.digest_type == MAC_LEARN) {
            mac_learn.pack({ hdr.ethernet.src_mac, intrinsic.ingress_port });
        }
        // Once for all replicas: the secret, which is each rank's own, is not in it.
        if (meta.replies == 1) {
            hdr.guard.checksum = header_checksum.update(HEADER_CHECKED_FIELDS);
        }
        packet.emit(hdr.bridge);
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.icmp);
        packet.emit(hdr.udp);
        packet.emit(hdr.base);
        packet.emit(hdr.guard);
        packet.emit(hdr.hello);
        packet.emit(hdr.keys);
#define EMIT_COLUMN(c, next) packet.emit(hdr.block_##c);
        FOR_EACH_COLUMN(EMIT_COLUMN)
        packet.emit(hdr.trailer);
    }
}

// Keys and blocks leave as they came from ingress: behind guard, egress parses nothing.
struct egress_headers_t {
    bridge_t   bridge;
    ethernet_t ethernet;
    arp_t      arp;
    ipv4_t     ipv4;
    icmp_t     icmp;
    udp_t      udp;
    base_t     base;
    guard_t    guard;
}

parser EgressParser(packet_in packet, out egress_headers_t hdr, out egress_metadata_t meta,
                    out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        packet.extract(hdr.bridge);
        meta.answer = 0;
        transition select(hdr.bridge.onward) {
            Onward.TO_GROUP: reply;
            Onward.TO_SENDER: reply;
            Onward.ARP: arp;
            Onward.PING: ping;
            default: accept;
        }
    }

    state arp {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.arp);
        transition accept;
    }

    state ping {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.icmp);
        transition accept;
    }

    state reply {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.base);
        packet.extract(hdr.guard);
        transition accept;
    }
}

control EgressDeparser(packet_out packet, inout egress_headers_t hdr, in egress_metadata_t meta,
                       in egress_intrinsic_metadata_for_deparser_t to_deparser) {
    Checksum() ipv4_checksum;

    apply {
        if (meta.answer == 1) {
            hdr.ipv4.checksum = ipv4_checksum.update(IPV4_CHECKED_FIELDS);
        }
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.icmp);
        packet.emit(hdr.udp);
        packet.emit(hdr.base);
        packet.emit(hdr.guard);
    }
}
