// p4reduce for Tofino 1 and 2: read this file as the table of contents. docs/tofino.md says what of it has been tried.
#include <core.p4>
#if __TARGET_TOFINO__ == 1
#include <tna.p4>
#elif __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#error "compile for tofino or tofino2"
#endif

#include "../shared/wire.p4"
#include "headers.p4"
#include "parser.p4"
#include "address.p4"
#include "responder.p4"
#include "forwarding.p4"
#include "packet_io.p4"
#include "validation.p4"
#include "admission.p4"
#include "slot_state.p4"
#include "check_word.p4"
#include "column_sum.p4"
#include "reply.p4"

control MainIngress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
                    in ingress_intrinsic_metadata_from_parser_t from_parser,
                    inout ingress_intrinsic_metadata_for_deparser_t to_deparser,
                    inout ingress_intrinsic_metadata_for_tm_t to_tm) {
    Address() address;
    Responder() responder;
    Forwarding() forwarding;
    PacketOut() from_cpu;
    Punt() punt;
    Validation() validation;
    Admission() admission;
    Tags() tags;
    SlotState() slot_state;
    CheckWord() check_word;
#define DECLARE_COLUMN(c, next) ColumnSum##c() column_##c; ColumnKey##c() column_key_##c;
    FOR_EACH_COLUMN(DECLARE_COLUMN)
    Reply() reply;
    Describe() describe;
    PassDown() pass_down;
    Dropping() dropping;

    action is_stale() {
        meta.stale = 1;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            from_cpu.apply(hdr, to_tm);
        } else if (!hdr.ethernet.isValid()) {
            to_deparser.drop_ctl = DROP_FRAME;   // shorter than an Ethernet header
        } else {
            hdr.bridge.setValid();
            hdr.bridge.ingress_port = intrinsic.ingress_port;
            // What the frame is, without a look at any state.
            validation.apply(hdr, meta, from_parser);
            admission.apply(hdr, meta, intrinsic);
            address.apply(hdr, meta);

            if (meta.to_switch == 0) {
                if (meta.own_mac == 0 && meta.own_ip == 0) {
                    forwarding.apply(hdr, intrinsic, to_deparser, to_tm);
                }
            } else if (meta.form == FORM_CONTRIBUTION) {
                // No register is touched before all that a frame says of itself has been checked.
                if (meta.own_mac == 0 && meta.length_right == 1 && !meta.header_fault && meta.admitted == 1
                    && meta.from_parent == 0 && meta.epoch_off == 0 && meta.over[15:15] == 1 && hdr.base.slot[15:15] == 0) {
                    tags.apply(hdr, meta);
                    if (meta.stored == hdr.base.round) {
                        slot_state.apply(hdr, meta);
                        check_word.apply(hdr, meta);
#define APPLY_COLUMN(c, next) column_##c.apply(hdr, meta);
                        FOR_EACH_COLUMN(APPLY_COLUMN)
#define APPLY_KEY(c, next) column_key_##c.apply(hdr, meta);
                        FOR_EACH_COLUMN(APPLY_KEY)
                        reply.apply(hdr, meta, intrinsic, to_deparser, to_tm);
                        describe.apply(hdr, meta);
                    } else {
                        is_stale();
                    }
                }
            } else if (meta.form == FORM_ANSWER) {
                pass_down.apply(hdr, meta, to_tm);
            } else if (meta.form == FORM_HELLO) {
                if (meta.length_right == 1) {
                    punt.apply(hdr, meta, intrinsic, to_tm);
                }
            } else {
                responder.apply(hdr, meta, intrinsic, to_tm);
            }
            dropping.apply(hdr, meta, to_deparser);
        }
    }
}

control MainEgress(inout egress_headers_t hdr, inout egress_metadata_t meta, in egress_intrinsic_metadata_t intrinsic,
                   in egress_intrinsic_metadata_from_parser_t from_parser,
                   inout egress_intrinsic_metadata_for_deparser_t to_deparser,
                   inout egress_intrinsic_metadata_for_output_port_t to_port) {
    AddressReply() address_reply;
    Answer() answer;
    PruneFlood() prune_flood;

    apply {
        address_reply.apply(hdr, meta, intrinsic, to_deparser);
        answer.apply(hdr, meta);
        prune_flood.apply(hdr, intrinsic, to_deparser);
    }
}

Pipeline(MainParser(), MainIngress(), MainDeparser(), EgressParser(), MainEgress(), EgressDeparser()) pipe;

Switch(pipe) main;
