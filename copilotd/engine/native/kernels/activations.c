#include "activations.h"

#include <string.h>

#include "lanes.h"

static int64_t blocks_of(int64_t inputs) { return (inputs + BLOCK - 1) / BLOCK; }

int64_t activations_bytes(int64_t rows, int64_t inputs) {
    return (rows * blocks_of(inputs) * (BLOCK + 8) + 63) / 64 * 64;
}

Activations activations_at(void *memory, int64_t rows, int64_t inputs) {
    int64_t blocks = blocks_of(inputs), all = rows * blocks;
    int8_t *levels = memory;
    float *step = (float *)(levels + all * BLOCK);
    return (Activations){levels, step, (int32_t *)(step + all), rows, blocks};
}

void quantise_block(const Activations *to, int64_t row, int64_t block, const float *from, int64_t count) {
    float padded[BLOCK];
    if (count < BLOCK) {
        memset(padded, 0, sizeof padded);
        memcpy(padded, from, (size_t)count * sizeof *from);
        from = padded;
    }
    int64_t at = block * to->rows + row;
    int8_t *levels = to->levels + at * BLOCK;
    lanes greatest = lanes_all(0.0f), nothing = greatest; /* nothing but where a number is none */
    for (int i = 0; i < BLOCK; i += LANES) {
        lanes x = lanes_load(from + i);
        greatest = lanes_max(greatest, lanes_abs(x));
        nothing = lanes_fma(x, lanes_all(0.0f), nothing);
    }
    float most = lanes_greatest(greatest);
    lanes scale = lanes_all(most > 1e-30f ? 127.0f / most : 0.0f);
    for (int i = 0; i < BLOCK; i += LANES) lanes_store_int8(levels + i, lanes_mul(lanes_load(from + i), scale));
    int32_t sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += levels[i];
    to->step[at] = most / 127.0f + lanes_sum(nothing);
    to->sum[at] = sum;
}

void quantise_row(const Activations *to, int64_t row, const float *from, int64_t inputs) {
    for (int64_t block = 0; block < to->blocks; block++) {
        int64_t first = block * BLOCK, left = inputs - first;
        quantise_block(to, row, block, from + first, left < BLOCK ? left : BLOCK);
    }
}
