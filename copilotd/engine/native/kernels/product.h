/* Matrix products x·Wᵀ of int8 or 4-bit weights and int8 activations.
 *
 * Weights lie in tiles of 16 outputs, a tile in blocks of 64 inputs, a block in units of 16 outputs by four inputs:
 * what one instruction multiplies. The sums over a block are exact in int32; they are scaled and added in float in
 * the order of the blocks, alike for any number of rows. */
#pragma once

#include "activations.h"

enum { TILE = 16, INT8 = 0, NF4 = 1 };

enum {
    INT8_BLOCK_BYTES = TILE * BLOCK,
    NF4_BLOCK_BYTES = TILE * BLOCK / 2 + TILE * 2 /* its absolute maxima as halves, behind the levels */
};

typedef struct {
    const uint8_t *weight; /* [tiles][blocks][block's bytes] */
    const float *scale;    /* int8: [tiles · 16], a level's worth by output; NF4: none */
    int64_t outputs, inputs, kind;
} Product;

/* out[row · stride + i] = (x·Wᵀ)[row][i] + bias[i], or, with `add`, is increased by it. `bias` may be NULL. */
void multiply(const Product *product, const Activations *x, int64_t rows, const float *bias, int add, float *out,
              int64_t stride, int threads);

/* The same of floats x [rows][inputs]; `scratch` is activations_bytes(rows, inputs) of memory. */
void multiply_floats(const Product *product, const float *x, int64_t rows, float *out, int64_t stride, void *scratch,
                     int64_t threads);

/* Ask for large pages, before the memory is first written: steps read all of it, and small pages cost them a tenth. */
void prefer_large_pages(void *memory, int64_t bytes);
