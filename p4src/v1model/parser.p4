// Bytes to headers and back.
#define JOIN(a, b) a##b
#define COLUMN_STATE(c) JOIN(column_, c)

parser MainParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: from_cpu;
            default: ethernet;
        }
    }

    state from_cpu {
        packet.extract(hdr.packet_out);
        transition accept;              // the frame behind it leaves as it is
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
        transition accept;
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
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
        transition accept;
    }

    state guard {
        packet.extract(hdr.guard);
        transition keys;
    }

    state keys {
        packet.extract(hdr.keys);
        transition column_0;
    }

    // column_c extracts block c if `present` says so, and goes on to column c + 1.
#define PARSE_COLUMN(c, next) \
    state column_##c { \
        transition select(hdr.base.present[c:c]) { \
            1: block_##c; \
            default: column_##next; \
        } \
    } \
    state block_##c { \
        packet.extract(hdr.block[c]); \
        transition column_##next; \
    }
    FOR_EACH_COLUMN(PARSE_COLUMN)

    state COLUMN_STATE(COLUMNS) {
        transition accept;
    }
}

#define IPV4_CHECKED_FIELDS { \
    hdr.ipv4.version_ihl, hdr.ipv4.tos, hdr.ipv4.total_bytes, hdr.ipv4.identification, \
    hdr.ipv4.reserved_df, hdr.ipv4.more_and_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, \
    hdr.ipv4.src_ip, hdr.ipv4.dst_ip }

control CheckChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.version_ihl == 0x45,
                        IPV4_CHECKED_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control UpdateChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        // Frames in transit keep the checksum they came with, right or wrong.
        update_checksum(hdr.ipv4.isValid() && meta.to_switch,
                        IPV4_CHECKED_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control MainDeparser(packet_out packet, in headers_t hdr) {
    apply {
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
        packet.emit(hdr.block);
    }
}
