// What a queue tells: each packet goes to the port and with the priority that it names.
#include "../construct.p4"

header h_t {
    bit<8> port;
    bit<8> priority;
    bit<32> enqueued;
    bit<32> enqueue_depth;
    bit<32> delay;
    bit<32> dequeue_depth;
    bit<48> egress_time;
}
ONLY_H
PARSE_H
INGRESS {
    apply {
        std.egress_spec = (bit<9>)hdr.h.port;
        std.priority = (bit<3>)hdr.h.priority;
    }
}
EGRESS {
    apply {
        hdr.h.enqueued = std.enq_timestamp;
        hdr.h.enqueue_depth = (bit<32>)std.enq_qdepth;
        hdr.h.delay = std.deq_timedelta;
        hdr.h.dequeue_depth = (bit<32>)std.deq_qdepth;
        hdr.h.egress_time = std.egress_global_timestamp;
    }
}
NO_VERIFY NO_UPDATE EMIT MAIN
