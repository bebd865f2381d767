/* Rows of activations, rounded to int8 in blocks of 64 inputs, each with a scale of its own. All rows of a block lie
 * together: they meet the same weights. */
#pragma once

#include <stdint.h>

enum { BLOCK = 64 };

typedef struct {
    int8_t *levels; /* [blocks][rows][64], -127 … 127, zeros beyond the inputs */
    float *step;    /* [blocks][rows]: a level's worth */
    int32_t *sum;   /* [blocks][rows]: of the levels */
    int64_t rows, blocks;
} Activations;

/* What so many rows take, and the rows laid out in that much memory, which starts at a multiple of 64 bytes. */
int64_t activations_bytes(int64_t rows, int64_t inputs);
Activations activations_at(void *memory, int64_t rows, int64_t inputs);

/* One block of one row, of `count` inputs. */
void quantise_block(const Activations *to, int64_t row, int64_t block, const float *from, int64_t count);

void quantise_row(const Activations *to, int64_t row, const float *from, int64_t inputs);
