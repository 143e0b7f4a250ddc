// A block on this target: ONE field of BLOCK_WORDS words, so that one register access and one expression add all.
#ifndef P4REDUCE_BLOCK_P4
#define P4REDUCE_BLOCK_P4

#if BLOCK_BITS > 2048
#error "BLOCK_WORDS must be at most 64: p4c's fields end at 2048 bits"
#endif

typedef bit<BLOCK_BITS> words_t;

header block_t {
    words_t words;
}

const words_t TOP_BITS = (words_t)(((1 << BLOCK_BITS) - 1) / 0xFFFFFFFF * 0x80000000);
const words_t LOW_BITS = (words_t)(((1 << BLOCK_BITS) - 1) / 0xFFFFFFFF * 0x7FFFFFFF);

// Word-wise addition modulo 2^32: the low 31 bits cannot carry out of their word,
// and each word's top bit is the exclusive or of the two and the carry into it.
#define ADD_WORDS(a, b) ((((a) & LOW_BITS) + ((b) & LOW_BITS)) ^ (((a) ^ (b)) & TOP_BITS))

#endif
