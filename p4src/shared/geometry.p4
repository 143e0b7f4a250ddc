// Geometry: the compile-time shape of a frame. `make p4` compiles one artifact
// folder per geometry by passing these with -D.
#ifndef P4REDUCE_GEOMETRY_P4
#define P4REDUCE_GEOMETRY_P4

#ifndef COLUMNS
#define COLUMNS 8          // blocks a frame can carry, 1..8
#endif
#ifndef BLOCK_WORDS
#define BLOCK_WORDS 32     // 32-bit words in a block
#endif
#ifndef SLOTS
#define SLOTS 1024         // slots of the whole switch, leased out to jobs
#endif

#if COLUMNS < 1 || COLUMNS > 8
#error "COLUMNS must be 1..8: `present` is one byte"
#endif
#if BLOCK_WORDS < 4 || BLOCK_WORDS > 256 || BLOCK_WORDS % 4 != 0
#error "BLOCK_WORDS must be 4, 8 .. 256: a rank describes its call in 4 words"
#endif
#if SLOTS < 1 || SLOTS > 32768
#error "SLOTS must be 1..32768: slot numbers are 16 bits and each slot has two versions"
#endif

// FOR_EACH_COLUMN(X) expands to X(0, 1) X(1, 2) ... : a column and the one after it.
#if COLUMNS > 1
#define COLUMN_1(X) X(1, 2)
#else
#define COLUMN_1(X)
#endif
#if COLUMNS > 2
#define COLUMN_2(X) X(2, 3)
#else
#define COLUMN_2(X)
#endif
#if COLUMNS > 3
#define COLUMN_3(X) X(3, 4)
#else
#define COLUMN_3(X)
#endif
#if COLUMNS > 4
#define COLUMN_4(X) X(4, 5)
#else
#define COLUMN_4(X)
#endif
#if COLUMNS > 5
#define COLUMN_5(X) X(5, 6)
#else
#define COLUMN_5(X)
#endif
#if COLUMNS > 6
#define COLUMN_6(X) X(6, 7)
#else
#define COLUMN_6(X)
#endif
#if COLUMNS > 7
#define COLUMN_7(X) X(7, 8)
#else
#define COLUMN_7(X)
#endif
#define FOR_EACH_COLUMN(X) X(0, 1) COLUMN_1(X) COLUMN_2(X) COLUMN_3(X) COLUMN_4(X) COLUMN_5(X) COLUMN_6(X) COLUMN_7(X)

#endif
