// Headers and metadata of the v1model program; aggregation headers are in shared/wire.p4.
#ifndef P4REDUCE_HEADERS_P4
#define P4REDUCE_HEADERS_P4

#include "block.p4"

typedef bit<9>  port_t;
typedef bit<16> group_t;                  // of multicast
typedef bit<48> mac_address_t;
typedef bit<32> ipv4_address_t;

const bit<32> PORTS = 512;
const port_t CPU_PORT = 510;
const group_t FLOOD_GROUP = 1;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_UDP = 17;

header ethernet_t {
    mac_address_t dst_mac;
    mac_address_t src_mac;
    bit<16>       ethertype;
}

header arp_t {
    bit<16>        hardware_type;
    bit<16>        protocol_type;
    bit<8>         hardware_bytes;
    bit<8>         protocol_bytes;
    bit<16>        operation;
    mac_address_t  sender_mac;
    ipv4_address_t sender_ip;
    mac_address_t  target_mac;
    ipv4_address_t target_ip;
}

header ipv4_t {
    bit<8>         version_ihl;
    bit<8>         tos;
    byte_count_t   total_bytes;
    bit<16>        identification;
    bit<2>         reserved_df;
    bit<14>        more_and_offset;   // 0: not a fragment
    bit<8>         ttl;
    bit<8>         protocol;
    bit<16>        checksum;
    ipv4_address_t src_ip;
    ipv4_address_t dst_ip;
}

header icmp_t {
    bit<8>  type;
    bit<8>  code;
    bit<16> checksum;
}

header udp_t {
    udp_port_t   src_port;
    udp_port_t   dst_port;
    byte_count_t bytes;
    bit<16>      checksum;
}

@controller_header("packet_in")
header packet_in_t {
    port_t ingress_port;
    bit<7> _pad;
}

@controller_header("packet_out")
header packet_out_t {
    port_t egress_port;
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
    guard_t          guard;
    hello_t          hello;
    keys_t           keys;
    block_t[COLUMNS] block;
}

// What the packet is to its round; decided once, in slot_state.p4.
enum bit<2> Verdict {
    FIRST = 0,                // opens a new round: overwrites what the slot held
    ADD = 1,                  // another child's contribution to the slot's round
    DUPLICATE = 2             // this child's contribution is in already
}

struct metadata_t {
    Drop            drop;
    bool            to_switch;    // the target IP is the switch's own
    mac_address_t   switch_mac;

    // from the admission table
    bool            from_parent;  // an answer of the switch above, for this switch's children
    bool            to_parent;    // a complete round goes to the switch above
    child_bitmap_t  child_bit;
    child_bitmap_t  full;         // all children of this switch that the job has
    slot_index_t    slot_base;
    slot_index_t    slot_count;
    epoch_t         lease_epoch;
    group_t         group;

    // from slot state
    bit<32>         index;        // of (slot, version) in every register
    Verdict         verdict;
    column_bitmap_t held;         // columns the slot held a sum for before this frame
    column_bitmap_t columns;      // and with it
    bool            complete;

    bool            to_group;     // egress addresses each replica
    bool            flooded;
}

// What guard_t's checksum covers.
#define CHECKED_KEY(c, next) , hdr.keys.key_##c
#define HEADER_CHECKED_FIELDS { \
    hdr.base.version, hdr.base.type, hdr.base.job, hdr.base.present, hdr.base.level, hdr.base.epoch, \
    hdr.base.slot, hdr.base.round, hdr.base.seen, hdr.guard.check FOR_EACH_COLUMN(CHECKED_KEY) }

struct mac_learn_t {
    mac_address_t mac;
    port_t        port;
}

#endif
