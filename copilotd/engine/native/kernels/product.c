#include "product.h"

#include <string.h>

#include "lanes.h"
#include "matrix.h"
#include "threads.h"

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

INLINE void finished(const Job *job, int64_t number, int64_t row, const float *result) {
    int64_t first = number * TILE, left = job->product->outputs - first;
    float *out = job->out + row * job->stride + first;
    if (left >= TILE) {
        lanes all = lanes_load(result);
        if (job->bias) all = lanes_add(all, lanes_load(job->bias + first));
        if (job->add) all = lanes_add(lanes_load(out), all);
        lanes_store(out, all);
        return;
    }
    for (int64_t i = 0; i < left; i++) {
        float one = job->bias ? result[i] + job->bias[first + i] : result[i];
        out[i] = job->add ? out[i] + one : one;
    }
}

INLINE const uint8_t *weight_of(const Job *job, int64_t number) {
    int64_t bytes = job->product->kind == NF4 ? NF4_BLOCK_BYTES : INT8_BLOCK_BYTES;
    return job->product->weight + number * job->x->blocks * bytes;
}

INLINE void tile(const Job *job, int64_t number, int64_t row, int rows) {
    floats sums[ROWS_AT_ONCE][PARTS];
    for (int r = 0; r < rows; r++)
        for (int part = 0; part < PARTS; part++) sums[r][part] = floats_all(0.0f);
    if (job->product->kind == NF4)
        tile_of_nf4(weight_of(job, number), job->x, row, sums, rows);
    else
        tile_of_int8(weight_of(job, number), job->product->scale + number * TILE, job->x, row, sums, rows);
    for (int r = 0; r < rows; r++) {
        float result[TILE];
        for (int part = 0; part < PARTS; part++) floats_store(result + part * PART, sums[r][part]);
        finished(job, number, row + r, result);
    }
}

/* A block's levels, as signed bytes in units of 16 outputs by four inputs. */
INLINE const int8_t *levels_of_nf4(const uint8_t *weight, int8_t *levels) {
    const __m128i signed_levels = _mm_sub_epi8(_mm_setr_epi8(NF4_LEVELS), _mm_set1_epi8(NF4_RAISED));
    const ints table = bytes_table(signed_levels), nibble = bytes_all(15);
    for (int at = 0; at < TILE * BLOCK / 2; at += PART * 4) {
        int unit = at / 64 * 128 + at % 64;
        ints packed = bytes_load(weight + at);
        bytes_store(levels + unit, bytes_look_up(table, bytes_and(packed, nibble)));
        bytes_store(levels + unit + 64, bytes_look_up(table, bytes_and(ints_down(packed, 4), nibble)));
    }
    return levels;
}

enum { MOST_BY_MATRIX = 4 * MATRIX_ROWS };

/* What `tile` computes, to the bit, by the matrix unit: `rows` a multiple of 16, MOST_BY_MATRIX at most. */
static void tile_by_matrix(const Job *job, int64_t number, int64_t row, int rows) {
    const Activations *x = job->x;
    const uint8_t *weight = weight_of(job, number);
    int nf4 = job->product->kind == NF4;
    _Alignas(64) float sums[MOST_BY_MATRIX][TILE];
    _Alignas(64) int8_t unpacked[TILE * BLOCK];
    _Alignas(64) int32_t exact[MATRIX_ROWS][TILE];
    memset(sums, 0, sizeof sums);
    for (int64_t block = 0; block < x->blocks; block++, weight += nf4 ? NF4_BLOCK_BYTES : INT8_BLOCK_BYTES) {
        fetch_ahead(weight, nf4 ? NF4_BLOCK_BYTES : INT8_BLOCK_BYTES);
        const int8_t *levels = nf4 ? levels_of_nf4(weight, unpacked) : (const int8_t *)weight;
        lanes most = lanes_all(1.0f);
        if (nf4) most = lanes_load_half((const uint16_t *)(weight + NF4_BLOCK_BYTES - TILE * 2));
        for (int first = 0; first < rows; first += MATRIX_ROWS) {
            int64_t at = block * x->rows + row + first;
            matrix_multiply(x->levels + at * BLOCK, levels, exact[0]);
            for (int r = 0; r < MATRIX_ROWS; r++) {
                float step = nf4 ? x->step[at + r] / NF4_STEPS : x->step[at + r];
                lanes scale = lanes_mul(most, lanes_all(step));
                lanes_store(sums[first + r],
                            lanes_fma(lanes_of_ints(exact[r]), scale, lanes_load(sums[first + r])));
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        if (!nf4) {
            lanes scale = lanes_load(job->product->scale + number * TILE);
            lanes_store(sums[r], lanes_mul(lanes_load(sums[r]), scale));
        }
        finished(job, number, row + r, sums[r]);
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
    int64_t begin = item * job->tiles_per_item, end = begin + job->tiles_per_item;
    if (end > all) end = all;
    int64_t by_matrix = matrix_there() ? job->rows / MATRIX_ROWS * MATRIX_ROWS : 0;
    if (by_matrix) {
        matrix_begin();
        for (int64_t number = begin; number < end; number++)
            for (int64_t row = 0; row < by_matrix; row += MOST_BY_MATRIX) {
                int64_t left = by_matrix - row;
                tile_by_matrix(job, number, row, left < MOST_BY_MATRIX ? (int)left : MOST_BY_MATRIX);
            }
        matrix_end();
    }
    for (int64_t number = begin; number < end; number++) {
        int64_t row = by_matrix;
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
