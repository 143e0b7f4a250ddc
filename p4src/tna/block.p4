// A block on this target: BLOCK_WORDS fields of one word, since a stateful ALU adds one word at a time.
#ifndef P4REDUCE_BLOCK_P4
#define P4REDUCE_BLOCK_P4

typedef bit<32> word_t;

// FOR_EACH_WORD(X, c) expands to X(c, 0) X(c, 1) ... : the words of column c's block.
#define WORDS_0(X, c) X(c, 0) X(c, 1) X(c, 2) X(c, 3)
#if BLOCK_WORDS > 4
#define WORDS_4(X, c) X(c, 4) X(c, 5) X(c, 6) X(c, 7)
#else
#define WORDS_4(X, c)
#endif
#if BLOCK_WORDS > 8
#define WORDS_8(X, c) X(c, 8) X(c, 9) X(c, 10) X(c, 11)
#else
#define WORDS_8(X, c)
#endif
#if BLOCK_WORDS > 12
#define WORDS_12(X, c) X(c, 12) X(c, 13) X(c, 14) X(c, 15)
#else
#define WORDS_12(X, c)
#endif
#if BLOCK_WORDS > 16
#error "BLOCK_WORDS must be at most 16: four columns of more are more stateful ALUs than a Tofino has"
#endif
#define FOR_EACH_WORD(X, c) WORDS_0(X, c) WORDS_4(X, c) WORDS_8(X, c) WORDS_12(X, c)

#define WORD_FIELD(c, j) word_t word_##j;
header block_t {
    FOR_EACH_WORD(WORD_FIELD, 0)
}

// FOR_EACH_SUBSET(X) expands to X(present, n) for every set of columns: its bitmap, and how many columns it has.
#define SUBSETS_0(X, p, n) X(p, n)
#define SUBSETS_1(X, p, n) SUBSETS_0(X, p, n) SUBSETS_0(X, p + 1, n + 1)
#define SUBSETS_2(X, p, n) SUBSETS_1(X, p, n) SUBSETS_1(X, p + 2, n + 1)
#define SUBSETS_3(X, p, n) SUBSETS_2(X, p, n) SUBSETS_2(X, p + 4, n + 1)
#define SUBSETS_4(X, p, n) SUBSETS_3(X, p, n) SUBSETS_3(X, p + 8, n + 1)
#define SUBSETS_5(X, p, n) SUBSETS_4(X, p, n) SUBSETS_4(X, p + 16, n + 1)
#define SUBSETS_6(X, p, n) SUBSETS_5(X, p, n) SUBSETS_5(X, p + 32, n + 1)
#define SUBSETS_7(X, p, n) SUBSETS_6(X, p, n) SUBSETS_6(X, p + 64, n + 1)
#define SUBSETS_8(X, p, n) SUBSETS_7(X, p, n) SUBSETS_7(X, p + 128, n + 1)
#define JOIN(a, b) a##b
#define SUBSETS_OF(columns) JOIN(SUBSETS_, columns)
#define FOR_EACH_SUBSET(X) SUBSETS_OF(COLUMNS)(X, 0, 0)

#endif
