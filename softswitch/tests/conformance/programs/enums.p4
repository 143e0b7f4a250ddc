// Enums and serializable enums.
#include "construct.p4"

enum bit<8> kind_t { Small = 1, Large = 0x80, Huge = 0xFF }
enum color_t { Red, Green, Blue }
header h_t { kind_t kind; bit<8> answer; }
struct headers { h_t h; }
struct metadata { color_t color; }
PARSE_H
INGRESS {
    apply {
        meta.color = color_t.Red;
        if (hdr.h.kind == kind_t.Large) { meta.color = color_t.Green; }
        else if (hdr.h.kind == kind_t.Huge) { meta.color = color_t.Blue; hdr.h.kind = kind_t.Small; }
        if (meta.color == color_t.Red) { hdr.h.answer = 1; }
        else if (meta.color == color_t.Green) { hdr.h.answer = 2; }
        else { hdr.h.answer = 3; }
        std.egress_spec = 1;
    }
}
REST
