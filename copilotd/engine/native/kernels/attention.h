/* Causal attention of a step's rows over a layer's cache. */
#pragma once

#include <stdint.h>

enum { KEY_BLOCK = 256 };

typedef struct {
    const float *queries;   /* [rows][query_stride], the heads side by side, scaled by 1/√size */
    int64_t query_stride;
    const uint16_t *keys;   /* halves [key heads][cache rows / 16][size][16] */
    const uint16_t *values; /* halves [key heads][cache rows][size] */
    int64_t cache_rows;
    int64_t rows, start;    /* row i stands at position start + i and sees what is not after it … */
    int64_t window;         /* … nor this many positions or more before it; 0: all */
    int64_t heads, key_heads, size;
    float *partial;         /* scratch: see partial_floats */
    float *out;             /* [rows][heads · size] */
} Attention;

/* What `partial` must hold. */
int64_t partial_floats(int64_t rows, int64_t end, int64_t heads, int64_t size);

void attend(const Attention *attention, int threads);
