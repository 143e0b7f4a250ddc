// The switch as a host: answers ARP requests and pings for its own address. Ingress sends them back to where they came
// from, egress writes the answer. The destination MAC is the switch's own already (address.p4).
const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;
const bit<8> ICMP_ECHO = 8;
const bit<8> ICMP_ECHO_REPLY = 0;

control Responder(inout headers_t hdr, in metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
                  inout ingress_intrinsic_metadata_for_tm_t to_tm) {
    action back_to_sender(Onward onward) {
        to_tm.ucast_egress_port = intrinsic.ingress_port;
        hdr.bridge.onward = onward;
    }

    table services {
        key = { meta.form: exact; }
        actions = { back_to_sender; @defaultonly NoAction; }
        const default_action = NoAction();
        const entries = {
            FORM_ARP: back_to_sender(Onward.ARP);
            FORM_PING: back_to_sender(Onward.PING);
        }
        size = 2;
    }

    apply {
        services.apply();
    }
}

control Answer(inout egress_headers_t hdr, inout egress_metadata_t meta) {
    action turn_round() {
        mac_address_t switch_mac = hdr.ethernet.dst_mac;
        hdr.ethernet.dst_mac = hdr.ethernet.src_mac;
        hdr.ethernet.src_mac = switch_mac;
    }

    action answer_arp() {
        ipv4_address_t switch_ip = hdr.arp.target_ip;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = hdr.ethernet.dst_mac;
        hdr.arp.sender_ip = switch_ip;
        turn_round();
    }

    action answer_ping() {
        turn_round();
        ipv4_address_t switch_ip = hdr.ipv4.dst_ip;
        hdr.ipv4.dst_ip = hdr.ipv4.src_ip;
        hdr.ipv4.src_ip = switch_ip;
        hdr.ipv4.ttl = 64;
        hdr.icmp.type = ICMP_ECHO_REPLY;
        meta.answer = 1;
    }

    action raise_checksum(bit<16> by) {
        hdr.icmp.checksum = hdr.icmp.checksum + by;
    }

    // RFC 1624: the type falls by 8 in the high byte, so the checksum rises by 0x0800, end-around: by one more if the
    // addition carries out.
    table icmp_checksum {
        key = { hdr.icmp.checksum: ternary; }
        actions = { raise_checksum; }
        const default_action = raise_checksum(0x0800);
        const entries = { 0xF800 &&& 0xF800: raise_checksum(0x0801); }
        size = 1;
    }

    apply {
        if (hdr.arp.isValid()) {
            answer_arp();
        } else if (hdr.icmp.isValid()) {
            answer_ping();
            icmp_checksum.apply();
        }
    }
}
