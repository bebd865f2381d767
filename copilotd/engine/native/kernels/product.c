#include "product.h"

#include <string.h>

#include "threads.h"
#include "wide.h"

/* NormalFloat4 (Dettmers et al. 2023, QLoRA, appendix E) in steps of 1/63, raised by 64 so that it is unsigned:
 * two products of it with int8 add up within 16 bits. */
enum { NF4_STEPS = 63, NF4_RAISED = 64 };
#define NF4_LEVELS 1, 20, 31, 39, 46, 52, 58, 64, 69, 74, 80, 85, 92, 99, 110, 127

enum { ROWS_AT_ONCE = PARTS == 1 ? 8 : 4 }; /* that share one reading of the weights: as the registers allow */

typedef struct {
    const Product *product;
    const Activations *x;
    int64_t rows;
    const float *bias;
    int add;
    float *out;
    int64_t stride;
    int64_t tiles_per_item;
} Job;

/* Four levels, over and over. */
INLINE ints four(const int8_t *levels) {
    int32_t word;
    memcpy(&word, levels, sizeof word);
    return ints_all(word);
}

enum { AHEAD = 3072 }; /* bytes: the processor's own fetching stops at every page and every other thread's tile */

INLINE void fetch_ahead(const uint8_t *weight, int bytes) {
    for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)weight + AHEAD + i, _MM_HINT_T0);
}

/* sums[row][part] = Σ over the blocks of scales times exact sums */
INLINE void tile_of_nf4(const uint8_t *weight, const Activations *x, int64_t row, floats sums[][PARTS], int rows) {
    const ints table = bytes_table(_mm_setr_epi8(NF4_LEVELS)), nibble = bytes_all(15);
    for (int64_t block = 0; block < x->blocks; block++, weight += NF4_BLOCK_BYTES) {
        int64_t at = block * x->rows + row;
        const int8_t *levels = x->levels + at * BLOCK;
        fetch_ahead(weight, NF4_BLOCK_BYTES);
        for (int part = 0; part < PARTS; part++) {
            ints acc[ROWS_AT_ONCE];
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) acc[r] = ints_all(-NF4_RAISED * x->sum[at + r]);
            const uint8_t *unit = weight + part * PART * 4;
#pragma GCC unroll 1
            for (int i = 0; i < BLOCK; i += 8, unit += 64) {
                ints packed = bytes_load(unit);
                ints first = bytes_look_up(table, bytes_and(packed, nibble));
                ints second = bytes_look_up(table, bytes_and(ints_down(packed, 4), nibble));
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++) {
                    acc[r] = dot4(acc[r], first, four(levels + r * BLOCK + i));
                    acc[r] = dot4(acc[r], second, four(levels + r * BLOCK + i + 4));
                }
            }
            const uint8_t *most = weight + NF4_BLOCK_BYTES - TILE * 2 + part * PART * 2;
            floats scale = floats_of_halves(most);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                float step = x->step[at + r] / NF4_STEPS;
                floats both = floats_mul(scale, floats_all(step));
                sums[r][part] = floats_fma(floats_of_ints(acc[r]), both, sums[r][part]);
            }
        }
    }
}

INLINE void tile_of_int8(const uint8_t *weight, const float *scale, const Activations *x, int64_t row,
                         floats sums[][PARTS], int rows) {
    for (int64_t block = 0; block < x->blocks; block++, weight += INT8_BLOCK_BYTES) {
        int64_t at = block * x->rows + row;
        const int8_t *levels = x->levels + at * BLOCK;
        fetch_ahead(weight, INT8_BLOCK_BYTES);
        for (int part = 0; part < PARTS; part++) {
            ints acc[ROWS_AT_ONCE];
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) acc[r] = ints_all(-INT8_RAISED * x->sum[at + r]);
            const uint8_t *unit = weight + part * PART * 4;
#pragma GCC unroll 1
            for (int i = 0; i < BLOCK; i += 4, unit += 64) {
                ints weights = raised(bytes_load(unit));
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++)
                    acc[r] = dot4_of_raised(acc[r], weights, four(levels + r * BLOCK + i));
            }
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                floats step = floats_all(x->step[at + r]);
                sums[r][part] = floats_fma(floats_of_ints(acc[r]), step, sums[r][part]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        for (int part = 0; part < PARTS; part++)
            sums[r][part] = floats_mul(sums[r][part], floats_load(scale + part * PART));
}

INLINE void tile(const Job *job, int64_t number, int64_t row, int rows) {
    const Product *product = job->product;
    floats sums[ROWS_AT_ONCE][PARTS];
    for (int r = 0; r < rows; r++)
        for (int part = 0; part < PARTS; part++) sums[r][part] = floats_all(0.0f);
    if (product->kind == NF4)
        tile_of_nf4(product->weight + number * job->x->blocks * NF4_BLOCK_BYTES, job->x, row, sums, rows);
    else
        tile_of_int8(product->weight + number * job->x->blocks * INT8_BLOCK_BYTES, product->scale + number * TILE,
                     job->x, row, sums, rows);
    int64_t first = number * TILE, left = product->outputs - first;
    int count = left < TILE ? (int)left : TILE;
    for (int r = 0; r < rows; r++) {
        float result[TILE];
        for (int part = 0; part < PARTS; part++) floats_store(result + part * PART, sums[r][part]);
        float *out = job->out + (row + r) * job->stride + first;
        if (job->bias)
            for (int i = 0; i < count; i++) result[i] += job->bias[first + i];
        if (job->add)
            for (int i = 0; i < count; i++) out[i] += result[i];
        else
            memcpy(out, result, (size_t)count * sizeof *out);
    }
}

/* The compiler makes the loops over rows anew for each number of them. */
#define REST(count) \
    case count: \
        if (count < ROWS_AT_ONCE) tile(job, number, row, count); \
        break;

static void tiles(const void *context, int item) {
    const Job *job = context;
    int64_t all = (job->product->outputs + TILE - 1) / TILE;
    int64_t first = item * job->tiles_per_item, end = first + job->tiles_per_item;
    if (end > all) end = all;
    for (int64_t number = first; number < end; number++) {
        int64_t row = 0;
        for (; row + ROWS_AT_ONCE <= job->rows; row += ROWS_AT_ONCE) tile(job, number, row, ROWS_AT_ONCE);
        switch (job->rows - row) {
            REST(7) REST(6) REST(5) REST(4) REST(3) REST(2) REST(1)
        }
    }
}

void multiply(const Product *product, const Activations *x, int64_t rows, const float *bias, int add, float *out,
              int64_t stride, int threads) {
    int64_t all = (product->outputs + TILE - 1) / TILE;
    int64_t per_item = all / (8 * (int64_t)threads);
    if (per_item < 1 || threads == 1) per_item = threads == 1 ? all : 1;
    Job job = {product, x, rows, bias, add, out, stride, per_item};
    in_parallel(tiles, &job, (int)((all + per_item - 1) / per_item), threads);
}

void multiply_floats(const Product *product, const float *x, int64_t rows, float *out, int64_t stride, void *scratch,
                     int64_t threads) {
    Activations levels = activations_at(scratch, rows, product->inputs);
    for (int64_t row = 0; row < rows; row++) quantise_row(&levels, row, x + row * product->inputs, product->inputs);
    multiply(product, &levels, rows, NULL, 0, out, stride, (int)threads);
}
