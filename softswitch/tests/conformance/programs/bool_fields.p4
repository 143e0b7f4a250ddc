// Fields of a header that are bools.
#include "construct.p4"

header h_t { bool first; bit<6> between; bool last; bit<8> answer; }
ONLY_H
PARSE_H
INGRESS {
    apply {
        std.egress_spec = 1;
        if (hdr.h.first) { hdr.h.answer = 1; }
        if (hdr.h.last && !hdr.h.first) { hdr.h.answer = hdr.h.answer + 2; }
        hdr.h.last = hdr.h.first;
        hdr.h.first = hdr.h.between == 5 || !hdr.h.isValid();
    }
}
REST
