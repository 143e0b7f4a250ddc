// Headers and metadata of the TNA program; aggregation headers are in shared/wire.p4.
#ifndef P4REDUCE_HEADERS_P4
#define P4REDUCE_HEADERS_P4

#include "block.p4"

#ifndef CPU_PORT_NUMBER
#if __TARGET_TOFINO__ == 1
#define CPU_PORT_NUMBER 192               // the PCIe port; 64 is the CPU's Ethernet port
#else
#define CPU_PORT_NUMBER 0
#endif
#endif

// Cells of the register that holds a round for each (child, slot, version). A job needs 2 * slots of them for each child.
#ifndef RANK_CELLS
#if __TARGET_TOFINO__ == 1
#define RANK_CELLS 65536
#else
#define RANK_CELLS 32768                  // 65536 are placed on Tofino 1 alone
#endif
#endif

typedef bit<9>  port_t;
typedef bit<16> group_t;                  // of multicast
typedef bit<48> mac_address_t;
typedef bit<32> ipv4_address_t;
typedef bit<16> cell_t;                   // of a register

const bit<32> PORTS = 512;
const port_t CPU_PORT = CPU_PORT_NUMBER;
const group_t FLOOD_GROUP = 1;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_UDP = 17;

const bit<3> DROP_FRAME = 1;              // drop_ctl: neither unicast nor multicast
const bit<3> MAC_LEARN = 1;               // digest_type
const bit<8> METER_RED = 3;

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
    bit<14>        more_and_offset;       // 0: not a fragment
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

// The port in the low bits, as the chip has it: a move that shifts cannot also clear the rest.
@controller_header("packet_in")
header packet_in_t {
    bit<7> _pad;
    port_t ingress_port;
}

@controller_header("packet_out")
header packet_out_t {
    bit<7> _pad;
    port_t egress_port;
}

// What egress has to do with a frame, in front of every frame that goes through egress.
enum bit<8> Onward {
    FLOOD = 0,                            // all ports but the one that it came from
    TO_GROUP = 1,                         // to children or to the parent: each replica to what it is for
    TO_SENDER = 2,                        // RESULT or PENDING, turned round
    ARP = 3,                              // an ARP request, to be answered
    PING = 4                              // an ICMP echo request, to be answered
}

header bridge_t {
    Onward onward;
    @padding bit<7> _pad;
    port_t ingress_port;
}

// Ingress sees a frame with the four bytes of its FCS, and has no count of its bytes. So the parser asks for four bytes
// behind the last header: they are the FCS, or what was sent in its place, and leave where they came.
header trailer_t {
    bit<32> fcs;
}

struct headers_t {
    bridge_t     bridge;
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    arp_t        arp;
    ipv4_t       ipv4;
    icmp_t       icmp;
    udp_t        udp;
    base_t       base;
    guard_t      guard;
    hello_t      hello;
    keys_t       keys;
#define BLOCK_HEADER(c, next) block_t block_##c;
    FOR_EACH_COLUMN(BLOCK_HEADER)
    trailer_t    trailer;
}

// What validation.p4 finds in a frame for the switch: a Drop reason, or one of these.
const bit<8> FORM_CONTRIBUTION = 16;
const bit<8> FORM_HELLO = 17;
const bit<8> FORM_ARP = 18;
const bit<8> FORM_PING = 19;
const bit<8> FORM_ANSWER = 20;            // RESULT or PENDING

// The tables that look at a frame alone write a field each of their own, so that they can share the first stage.
struct metadata_t {
    // from the parser
    ipv4_address_t  target_ip;
    ipv4_address_t  source_ip;
    bool            ipv4_fault;           // IPv4 header checksum
    bool            header_fault;         // guard's checksum

    // from address.p4
    bit<1>          to_switch;            // the target IP is the switch's own
    bit<1>          own_ip;               // the source IP is
    bit<1>          own_mac;              // the source MAC is

    // from validation.p4
    bit<8>          form;
    bit<1>          length_right;

    // from the admission table
    bit<1>          admitted;
    bit<1>          from_parent;          // an answer of the switch above, for this switch's children
    bit<1>          to_parent;            // a complete round goes to the switch above
    bit<32>         epoch;                // the lease's
    round_t         round_before;         // the frame's round less 2, that of its version before
    epoch_t         epoch_off;            // the frame's epoch less the lease's
    slot_index_t    over;                 // the frame's slot less the number of slots: negative if inside
    child_bitmap_t  child_bit;
    child_bitmap_t  full;                 // all children of this switch that the job has
    group_t         group;
    cell_t          index;                // of (slot, version) in every register
    cell_t          rank_index;           // of (child, slot, version)

    // from slot state
    round_t         stored;               // the version's round, after this frame
    bit<1>          first;                // the frame opened this round
    bit<1>          fresh;                // this child's contribution was not in yet
    column_bitmap_t held;                 // columns that hold a sum, with this frame's
    bit<1>          stale;

    bit<1>          replies;              // the frame leaves with another header: a new header checksum
    bit<1>          pending;              // a PENDING
    bit<8>          color;                // of the HELLO meter
}

struct egress_metadata_t {
    bit<1> answer;                        // made by the switch: a new IPv4 checksum
}

struct mac_learn_t {
    mac_address_t mac;
    port_t        port;
}

// What guard_t's checksum covers.
#define CHECKED_KEY(c, next) , hdr.keys.key_##c
#define HEADER_CHECKED_FIELDS { \
    hdr.base.version, hdr.base.type, hdr.base.job, hdr.base.present, hdr.base.level, hdr.base.epoch, \
    hdr.base.slot, hdr.base.round, hdr.base.seen, hdr.guard.check FOR_EACH_COLUMN(CHECKED_KEY) }

#define IPV4_CHECKED_FIELDS { \
    hdr.ipv4.version_ihl, hdr.ipv4.tos, hdr.ipv4.total_bytes, hdr.ipv4.identification, \
    hdr.ipv4.reserved_df, hdr.ipv4.more_and_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, \
    hdr.ipv4.src_ip, hdr.ipv4.dst_ip }

#endif
