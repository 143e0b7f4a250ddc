// The wire format: the one source of truth for every number a worker and the
// switch must agree on. tests/p4src holds the Python side to this file. What a
// block is made of is the target's choice (block.p4 of each).
#ifndef P4REDUCE_WIRE_P4
#define P4REDUCE_WIRE_P4

#include "geometry.p4"

typedef bit<8>  job_t;
typedef bit<16> epoch_t;                  // the job's incarnation, never 0
typedef bit<16> slot_index_t;             // within a lease, or of the whole switch
typedef bit<32> round_t;                  // per slot, serial-number arithmetic
typedef bit<32> child_bitmap_t;           // bit i: child i, a rank or a switch below
typedef bit<8>  column_bitmap_t;          // bit c: column c
typedef bit<32> key_t;                    // next block (24 bits) ++ (255 - exponent) (8 bits)
typedef bit<64> nonce_t;
typedef bit<64> secret_t;                 // of a rank and its lease
typedef bit<32> check_t;                  // weighted sum of a frame's words, modulo 2^32
typedef bit<16> udp_port_t;
typedef bit<16> byte_count_t;

const udp_port_t AGGREGATION_PORT = 21072;   // UDP destination port of the switch

const bit<4> WIRE_VERSION = 2;

enum bit<4> FrameType {
    CONTRIBUTE = 1,                       // child -> switch: a rank's, or a switch's, keys and blocks of one round
    RESULT = 2,                           // root -> ranks, by the switches between: the round's keys and block sums
    PENDING = 3,                          // switch -> children: who has contributed so far
    HELLO = 4                             // worker -> controller, through the switch: the join nonce
}

@noWarn("unused")                          // the switch only takes the least key
const key_t KEY_NONE = 0xFFFFFFFF;        // this column has no block left

// Why an aggregation frame was dropped: the index into the `drops` counter.
enum bit<8> Drop {
    NONE = 0,
    TRUNCATED = 1,                        // ended before its headers did
    LENGTH = 2,                           // IPv4, UDP and frame lengths disagree with `present`
    VERSION = 3,
    TYPE = 4,                             // a type that its sender may not send
    NOT_ADMITTED = 5,                     // no lease for this (port, address, UDP port, job, secret)
    EPOCH = 6,
    SLOT = 7,                             // outside the lease
    STALE = 8,                            // neither the slot's round nor the one that follows it
    CHECKSUM = 9,                         // IPv4 header checksum
    FRAGMENT = 10,
    RESERVED = 11,                        // a field that must be zero is not
    NOT_SERVED = 12,                      // to the switch's own address, but not for any service it has
    HEADER_CHECKSUM = 13,                 // over base header, check and keys
    SPOOFED = 14,                         // claims the switch's own address
    RATE = 15                             // more HELLOs from one port than the controller takes
}
const bit<32> DROP_REASONS = 16;

header base_t {
    bit<4>          version;
    FrameType       type;
    job_t           job;
    column_bitmap_t present;              // columns that carry a block
    bit<8>          level;                // RESULT, PENDING: switches that it passed on its way down; 0 otherwise
    epoch_t         epoch;
    slot_index_t    slot;                 // within the job's lease
    round_t         round;
    child_bitmap_t  seen;                 // PENDING, RESULT: children that have contributed
}

// Behind the base header of all frames but HELLO.
header guard_t {
    secret_t secret;                      // of the child that sent the frame, or that a reply goes to
    check_t  check;                       // of the blocks in the frame; added up like any other word
    bit<16>  checksum;                    // Internet checksum over base header, check and keys
    bit<16>  reserved;
}

// Look-ahead, a key for each column.
header keys_t {
#define KEY_FIELD(c, next) key_t key_##c;
    FOR_EACH_COLUMN(KEY_FIELD)
}

header hello_t {
    nonce_t nonce;
}

const column_bitmap_t ALL_COLUMNS = (column_bitmap_t)((1 << COLUMNS) - 1);   // the bits that mean a column

const byte_count_t ETHERNET_BYTES = 14;
const byte_count_t IPV4_BYTES = 20;
const byte_count_t UDP_BYTES = 8;
const byte_count_t BASE_BYTES = 16;
const byte_count_t GUARD_BYTES = 16;
const byte_count_t KEYS_BYTES = 4 * COLUMNS;
const byte_count_t BLOCK_BYTES = 4 * BLOCK_WORDS;

// Bytes of the blocks that hdr.base.present stands for. One expression: BMv2 interprets every statement.
#define ADD_COLUMN(c, next) + (byte_count_t)hdr.base.present[c:c]
#define PRESENT_BYTES (BLOCK_BYTES * (0 FOR_EACH_COLUMN(ADD_COLUMN)))

const byte_count_t NONCE_BYTES = 8;

#endif
