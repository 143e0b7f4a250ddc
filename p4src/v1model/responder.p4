// The switch as a host: answers ARP requests and pings for its own address.
const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;
const bit<8> ICMP_ECHO = 8;
const bit<8> ICMP_ECHO_REPLY = 0;

control Responder(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action back_to_sender() {
        hdr.ethernet.dst_mac = hdr.ethernet.src_mac;
        hdr.ethernet.src_mac = meta.switch_mac;
        standard.egress_spec = standard.ingress_port;
    }

    action answer_arp() {
        ipv4_address_t switch_ip = hdr.arp.target_ip;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = meta.switch_mac;
        hdr.arp.sender_ip = switch_ip;
        back_to_sender();
    }

    action answer_ping() {
        ipv4_address_t switch_ip = hdr.ipv4.dst_ip;
        hdr.ipv4.dst_ip = hdr.ipv4.src_ip;
        hdr.ipv4.src_ip = switch_ip;
        hdr.ipv4.ttl = 64;
        hdr.icmp.type = ICMP_ECHO_REPLY;
        // RFC 1624: the type fell by 8 in the high byte, so the checksum rises by 0x0800, end-around.
        bit<17> sum = (bit<17>)hdr.icmp.checksum + 0x0800;
        hdr.icmp.checksum = sum[15:0] + (bit<16>)sum[16:16];
        back_to_sender();
    }

    apply {
        if (hdr.arp.isValid() && hdr.arp.operation == ARP_REQUEST) {
            answer_arp();
        } else if (hdr.icmp.isValid() && hdr.icmp.type == ICMP_ECHO && hdr.icmp.code == 0
                   && standard.checksum_error == 0) {
            answer_ping();
        } else {
            meta.drop = Drop.NOT_SERVED;
        }
    }
}
