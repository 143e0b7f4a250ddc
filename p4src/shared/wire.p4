// The wire format: the one source of truth for every number a worker and the
// switch must agree on. tests/p4src holds the Python side to this file.
#ifndef P4REDUCE_WIRE_P4
#define P4REDUCE_WIRE_P4

#include "geometry.p4"

const bit<16> AGGREGATION_PORT = 21072;   // UDP destination port of the switch

const bit<4> WIRE_VERSION = 1;
const bit<4> TYPE_CONTRIBUTE = 1;         // worker -> switch: a rank's keys and blocks of one round
const bit<4> TYPE_RESULT = 2;             // switch -> workers: the round's keys and block sums
const bit<4> TYPE_PENDING = 3;            // switch -> worker: who has contributed so far
const bit<4> TYPE_HELLO = 4;              // worker -> controller, through the switch: the join nonce

@noWarn("unused")                          // the switch only takes the least key
const bit<32> KEY_NONE = 0xFFFFFFFF;      // this column has no block left

// Why an aggregation frame was dropped: the index into the `drops` counter.
const bit<8> DROP_NONE = 0;
const bit<8> DROP_TRUNCATED = 1;          // ended before its headers did
const bit<8> DROP_LENGTH = 2;             // IPv4, UDP and frame lengths disagree with `present`
const bit<8> DROP_VERSION = 3;
const bit<8> DROP_TYPE = 4;               // a type that workers do not send
const bit<8> DROP_NOT_ADMITTED = 5;       // no lease for this (port, address, UDP port, job)
const bit<8> DROP_EPOCH = 6;
const bit<8> DROP_SLOT = 7;               // outside the lease
const bit<8> DROP_STALE = 8;              // an older round than the slot holds
const bit<8> DROP_CHECKSUM = 9;           // IPv4 header checksum
const bit<8> DROP_FRAGMENT = 10;
const bit<8> DROP_RESERVED = 11;          // a field that must be zero is not
const bit<8> DROP_NOT_SERVED = 12;        // to the switch's own address, but not for any service it has
const bit<32> DROP_REASONS = 13;

header base_t {
    bit<4>  version;
    bit<4>  type;
    bit<8>  job;
    bit<8>  present;                      // bit c: column c carries a block
    bit<8>  reserved;
    bit<16> epoch;
    bit<16> slot;                         // within the job's lease
    bit<32> round;                        // per slot, serial-number arithmetic
    bit<32> seen;                         // PENDING, RESULT: bit r: rank r has contributed
}

// Look-ahead of one column: next block (24 bits) ++ (255 - exponent) (8 bits).
header keys_t {
#define KEY_FIELD(c, next) bit<32> key_##c;
    FOR_EACH_COLUMN(KEY_FIELD)
}

header block_t {
    bit<BLOCK_BITS> words;
}

header hello_t {
    bit<64> nonce;
}

const bit<8> ALL_COLUMNS = (bit<8>)((1 << COLUMNS) - 1);   // the bits of `present` that mean a column

const bit<16> ETHERNET_BYTES = 14;
const bit<16> IPV4_BYTES = 20;
const bit<16> UDP_BYTES = 8;
const bit<16> BASE_BYTES = 16;
const bit<16> KEYS_BYTES = 4 * COLUMNS;
const bit<16> BLOCK_BYTES = 4 * BLOCK_WORDS;
const bit<16> HELLO_BYTES = 8;

#endif
