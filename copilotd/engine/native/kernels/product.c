#include "product.h"

#include <string.h>

#include "lanes.h"
#include "threads.h"

#define INLINE static inline __attribute__((always_inline))

/* NormalFloat4 (Dettmers et al. 2023, QLoRA, appendix E) in steps of 1/63, raised by 64 so that it is unsigned:
 * two products of it with int8 add up within 16 bits. */
enum { NF4_STEPS = 63, NF4_RAISED = 64 };
#define NF4_LEVELS 1, 20, 31, 39, 46, 52, 58, 64, 69, 74, 80, 85, 92, 99, 110, 127

enum { MOST_ROWS = 4 }; /* that share one reading of the weights */

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

/* acc + Σ a·b over each four neighbours; a unsigned, b signed. Without VNNI |a·b + a'·b'| must stay below 2^15. */
INLINE __m256i dot4(__m256i acc, __m256i a, __m256i b) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpbusd_epi32(acc, a, b);
#elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(acc, a, b);
#else
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
#endif
}

#if (defined(__AVX512VNNI__) && defined(__AVX512VL__)) || defined(__AVXVNNI__)
enum { INT8_RAISED = 128 };
#else
enum { INT8_RAISED = 0 };
#endif

/* int8 weights by activations, where INT8_RAISED times the activations' sum is to be taken off the result. */
INLINE __m256i dot4_int8(__m256i acc, __m256i weights, __m256i x) {
    if (INT8_RAISED) return dot4(acc, _mm256_xor_si256(weights, _mm256_set1_epi8((char)0x80)), x);
    return dot4(acc, _mm256_abs_epi8(weights), _mm256_sign_epi8(x, weights));
}

INLINE __m256i four(const int8_t *levels) {
    int32_t word;
    memcpy(&word, levels, sizeof word);
    return _mm256_set1_epi32(word);
}

enum { AHEAD = 3072 }; /* bytes: the processor's own fetching stops at every page and every other thread's tile */

INLINE void fetch_ahead(const uint8_t *weight, int bytes) {
    for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)weight + AHEAD + i, _MM_HINT_T0);
}

/* sums[row][half] = Σ over the blocks of scales times exact sums, for eight outputs each */
INLINE void tile_of_nf4(const uint8_t *weight, const Activations *x, int64_t row, __m256 sums[][2], int rows) {
    const __m256i table = _mm256_broadcastsi128_si256(_mm_setr_epi8(NF4_LEVELS));
    const __m256i nibble = _mm256_set1_epi8(15);
    const int8_t *levels = x->levels + row * x->blocks * BLOCK;
    for (int64_t block = 0; block < x->blocks; block++, weight += NF4_BLOCK_BYTES) {
        fetch_ahead(weight, NF4_BLOCK_BYTES);
        for (int half = 0; half < 2; half++) {
            __m256i acc[MOST_ROWS];
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                acc[r] = _mm256_set1_epi32(-NF4_RAISED * x->sum[(row + r) * x->blocks + block]);
            const uint8_t *unit = weight + half * 32;
#pragma GCC unroll 1
            for (int i = 0; i < BLOCK; i += 8, unit += 64) {
                __m256i packed = _mm256_loadu_si256((const __m256i *)unit);
                __m256i first = _mm256_shuffle_epi8(table, _mm256_and_si256(packed, nibble));
                packed = _mm256_and_si256(_mm256_srli_epi16(packed, 4), nibble);
                __m256i second = _mm256_shuffle_epi8(table, packed);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) {
                    const int8_t *at = levels + (r * x->blocks + block) * BLOCK + i;
                    acc[r] = dot4(acc[r], first, four(at));
                    acc[r] = dot4(acc[r], second, four(at + 4));
                }
            }
            const uint8_t *most = weight + NF4_BLOCK_BYTES - TILE * 2 + half * 16;
            __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)most));
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                float step = x->step[(row + r) * x->blocks + block] / NF4_STEPS;
                __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(step));
                sums[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r]), both, sums[r][half]);
            }
        }
    }
}

INLINE void tile_of_int8(const uint8_t *weight, const float *scale, const Activations *x, int64_t row,
                         __m256 sums[][2], int rows) {
    const int8_t *levels = x->levels + row * x->blocks * BLOCK;
    for (int64_t block = 0; block < x->blocks; block++, weight += INT8_BLOCK_BYTES) {
        fetch_ahead(weight, INT8_BLOCK_BYTES);
        for (int half = 0; half < 2; half++) {
            __m256i acc[MOST_ROWS];
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                acc[r] = _mm256_set1_epi32(-INT8_RAISED * x->sum[(row + r) * x->blocks + block]);
            const uint8_t *unit = weight + half * 32;
#pragma GCC unroll 1
            for (int i = 0; i < BLOCK; i += 4, unit += 64) {
                __m256i weights = _mm256_loadu_si256((const __m256i *)unit);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++)
                    acc[r] = dot4_int8(acc[r], weights, four(levels + (r * x->blocks + block) * BLOCK + i));
            }
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                __m256 step = _mm256_set1_ps(x->step[(row + r) * x->blocks + block]);
                sums[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r]), step, sums[r][half]);
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        for (int half = 0; half < 2; half++)
            sums[r][half] = _mm256_mul_ps(sums[r][half], _mm256_loadu_ps(scale + half * 8));
}

INLINE void tile(const Job *job, int64_t number, int64_t row, int rows) {
    const Product *product = job->product;
    __m256 sums[MOST_ROWS][2];
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    if (product->kind == NF4)
        tile_of_nf4(product->weight + number * job->x->blocks * NF4_BLOCK_BYTES, job->x, row, sums, rows);
    else
        tile_of_int8(product->weight + number * job->x->blocks * INT8_BLOCK_BYTES, product->scale + number * TILE,
                     job->x, row, sums, rows);
    int64_t first = number * TILE, left = product->outputs - first;
    int count = left < TILE ? (int)left : TILE;
    for (int r = 0; r < rows; r++) {
        float result[TILE];
        _mm256_storeu_ps(result, sums[r][0]);
        _mm256_storeu_ps(result + 8, sums[r][1]);
        float *out = job->out + (row + r) * job->stride + first;
        if (job->bias)
            for (int i = 0; i < count; i++) result[i] += job->bias[first + i];
        if (job->add)
            for (int i = 0; i < count; i++) out[i] += result[i];
        else
            memcpy(out, result, (size_t)count * sizeof *out);
    }
}

static void tiles(const void *context, int item) {
    const Job *job = context;
    int64_t all = (job->product->outputs + TILE - 1) / TILE;
    int64_t first = item * job->tiles_per_item, end = first + job->tiles_per_item;
    if (end > all) end = all;
    for (int64_t number = first; number < end; number++) {
        int64_t row = 0;
        for (; row + MOST_ROWS <= job->rows; row += MOST_ROWS) tile(job, number, row, MOST_ROWS);
        switch (job->rows - row) {
            case 3: tile(job, number, row, 3); break;
            case 2: tile(job, number, row, 2); break;
            case 1: tile(job, number, row, 1); break;
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
