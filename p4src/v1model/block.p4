// A block on this target: as few fields as p4c allows, so that one register access and one expression add many words.
#ifndef P4REDUCE_BLOCK_P4
#define P4REDUCE_BLOCK_P4

#if BLOCK_WORDS <= 64                     // p4c's fields end at 2048 bits
#define PARTS 1
#define PART_WORDS BLOCK_WORDS
#elif BLOCK_WORDS % 64 == 0
#define PARTS (BLOCK_WORDS / 64)
#define PART_WORDS 64
#else
#error "BLOCK_WORDS above 64 must be 128, 192 or 256: a block is made of fields of 64 words"
#endif
#define PART_BITS (32 * PART_WORDS)

// FOR_EACH_PART(X) expands to X(0) X(1) ...: the fields of a block.
#if PARTS > 1
#define PART_1(X) X(1)
#else
#define PART_1(X)
#endif
#if PARTS > 2
#define PART_2(X) X(2)
#else
#define PART_2(X)
#endif
#if PARTS > 3
#define PART_3(X) X(3)
#else
#define PART_3(X)
#endif
#define FOR_EACH_PART(X) X(0) PART_1(X) PART_2(X) PART_3(X)

typedef bit<PART_BITS> words_t;

header block_t {
#define PART_FIELD(p) words_t words_##p;
    FOR_EACH_PART(PART_FIELD)
}

const words_t TOP_BITS = (words_t)(((1 << PART_BITS) - 1) / 0xFFFFFFFF * 0x80000000);
const words_t LOW_BITS = (words_t)(((1 << PART_BITS) - 1) / 0xFFFFFFFF * 0x7FFFFFFF);

// Word-wise addition modulo 2^32: the low 31 bits cannot carry out of their word,
// and each word's top bit is the exclusive or of the two and the carry into it.
#define ADD_WORDS(a, b) ((((a) & LOW_BITS) + ((b) & LOW_BITS)) ^ (((a) ^ (b)) & TOP_BITS))

#endif
