// Headers and metadata of the v1model program; aggregation headers are in shared/wire.p4.
#ifndef P4REDUCE_HEADERS_P4
#define P4REDUCE_HEADERS_P4

const bit<9> CPU_PORT = 510;
const bit<16> FLOOD_GROUP = 1;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_UDP = 17;

header ethernet_t {
    bit<48> dst_mac;
    bit<48> src_mac;
    bit<16> ethertype;
}

header arp_t {
    bit<16> hardware_type;
    bit<16> protocol_type;
    bit<8>  hardware_bytes;
    bit<8>  protocol_bytes;
    bit<16> operation;
    bit<48> sender_mac;
    bit<32> sender_ip;
    bit<48> target_mac;
    bit<32> target_ip;
}

header ipv4_t {
    bit<8>  version_ihl;
    bit<8>  tos;
    bit<16> total_bytes;
    bit<16> identification;
    bit<2>  reserved_df;
    bit<14> more_and_offset;   // 0: not a fragment
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src_ip;
    bit<32> dst_ip;
}

header icmp_t {
    bit<8>  type;
    bit<8>  code;
    bit<16> checksum;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> bytes;
    bit<16> checksum;
}

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> _pad;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> _pad;
}

struct headers_t {
    packet_in_t      packet_in;
    packet_out_t     packet_out;
    ethernet_t       ethernet;
    arp_t            arp;
    ipv4_t           ipv4;
    icmp_t           icmp;
    udp_t            udp;
    base_t           base;
    hello_t          hello;
    keys_t           keys;
    block_t[COLUMNS] block;
}

// What the packet is to its round; decided once, in slot_state.p4.
const bit<2> VERDICT_FIRST = 0;       // opens a new round: overwrites what the slot held
const bit<2> VERDICT_ADD = 1;         // another rank's contribution to the slot's round
const bit<2> VERDICT_DUPLICATE = 2;   // this rank's contribution is in already

struct metadata_t {
    bit<8>  drop;             // DROP_*, 0: keep
    bool    to_switch;        // the target IP is the switch's own
    bit<48> switch_mac;

    // from the admission table
    bit<32> rank_bit;
    bit<32> full;             // one bit a rank of the job
    bit<16> slot_base;
    bit<16> slot_count;
    bit<16> lease_epoch;
    bit<16> group;

    // from slot state
    bit<32> index;            // of (slot, version) in every register
    bit<2>  verdict;
    bit<8>  held;             // columns the slot holds a sum for
    bool    complete;

    bool    to_job;           // a multicast RESULT: egress addresses each replica
    bool    flooded;
}

struct mac_learn_t {
    bit<48> mac;
    bit<9>  port;
}

#endif
