/* Keys are reduced in blocks of 256 that depend on the position alone, each by itself: its greatest score, its sum
 * of exponentials, its weighted values. The blocks are then brought together in their order. So a row's bits do
 * not depend on the rows beside it, nor on how the blocks were divided among threads (as in Flash-Decoding, Dao et
 * al. 2023). */
#include "attention.h"

#include <math.h>

#include "lanes.h"
#include "threads.h"

enum { TOGETHER = PARTS == 1 ? 8 : 4 }; /* queries that share one reading of keys and values */

typedef struct {
    const Attention *attention;
    int64_t blocks; /* that the last row sees or is past */
    int whole;      /* an item is a tile of queries over all blocks; else over one */
} Job;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t partial_floats(int64_t rows, int64_t end, int64_t heads, int64_t size) {
    return rows * heads * ((end + KEY_BLOCK - 1) / KEY_BLOCK) * (size + LANES);
}

/* Of one query and block: `size` weighted values, then the greatest score and the sum. */
INLINE float *partial_of(const Job *job, int64_t group, int64_t query, int64_t block) {
    const Attention *a = job->attention;
    int64_t queries = a->rows * (a->heads / a->key_heads);
    return a->partial + ((group * queries + query) * job->blocks + block) * (a->size + LANES);
}

/* Query q of a key head is head q % group of row q / group. */
INLINE int64_t row_of(const Attention *a, int64_t query) { return query / (a->heads / a->key_heads); }

INLINE const float *query_of(const Attention *a, int64_t group, int64_t query) {
    int64_t per_group = a->heads / a->key_heads;
    return a->queries + query / per_group * a->query_stride + (group * per_group + query % per_group) * a->size;
}

INLINE void block_of(const Job *job, int64_t group, int64_t block, int64_t first_query, int count) {
    const Attention *a = job->attention;
    int64_t size = a->size, from = block * KEY_BLOCK;
    /* keys of this block that each query, and any of them, sees */
    int low[TOGETHER], high[TOGETHER], lowest = KEY_BLOCK, highest = 0;
    const float *query[TOGETHER];
    for (int q = 0; q < count; q++) {
        int64_t end = a->start + row_of(a, first_query + q) + 1;
        int64_t begin = a->window ? max64(0, end - a->window) : 0;
        low[q] = (int)min64(KEY_BLOCK, max64(0, begin - from));
        high[q] = (int)min64(KEY_BLOCK, max64(0, end - from));
        if (low[q] < lowest) lowest = low[q];
        if (high[q] > highest) highest = high[q];
        query[q] = query_of(a, group, first_query + q);
    }
    lowest -= lowest % LANES;
    if (lowest >= highest) {
        for (int q = 0; q < count; q++) {
            float *partial = partial_of(job, group, first_query + q, block);
            for (int64_t i = 0; i < size; i++) partial[i] = 0.0f;
            partial[size] = -1e30f;
            partial[size + 1] = 0.0f;
        }
        return;
    }

    float weight[TOGETHER][KEY_BLOCK];
    lanes greatest[TOGETHER];
    for (int q = 0; q < count; q++) greatest[q] = lanes_all(-1e30f);
    for (int key = lowest; key < highest; key += LANES) {
        const uint16_t *keys = a->keys + ((group * a->cache_rows + from + key) * size);
        lanes score[TOGETHER];
#pragma GCC unroll 8
        for (int q = 0; q < count; q++) score[q] = lanes_all(0.0f);
        for (int64_t i = 0; i < size; i++) {
            lanes k = lanes_load_half(keys + i * LANES);
#pragma GCC unroll 8
            for (int q = 0; q < count; q++) score[q] = lanes_fma(lanes_all(query[q][i]), k, score[q]);
        }
#pragma GCC unroll 8
        for (int q = 0; q < count; q++) {
            float *at = weight[q] + key;
            lanes_store(at, score[q]);
            if (key < low[q] || key + LANES > high[q]) {
                for (int i = 0; i < LANES; i++)
                    if (key + i < low[q] || key + i >= high[q]) at[i] = -INFINITY;
                score[q] = lanes_load(at);
            }
            greatest[q] = lanes_max(greatest[q], score[q]);
        }
    }
    for (int q = 0; q < count; q++) {
        float most = lanes_greatest(greatest[q]);
        lanes sum = lanes_all(0.0f);
        for (int key = lowest; key < highest; key += LANES) {
            lanes e = lanes_exp(lanes_sub(lanes_load(weight[q] + key), lanes_all(most)));
            lanes_store(weight[q] + key, e);
            sum = lanes_add(sum, e);
        }
        float *partial = partial_of(job, group, first_query + q, block);
        partial[size] = most;
        partial[size + 1] = lanes_sum(sum);
    }
    for (int64_t part = 0; part < size; part += LANES) {
        const uint16_t *values = a->values + (group * a->cache_rows + from) * size + part;
        lanes mixed[TOGETHER];
#pragma GCC unroll 8
        for (int q = 0; q < count; q++) mixed[q] = lanes_all(0.0f);
        for (int key = lowest; key < highest; key++) {
            lanes v = lanes_load_half(values + key * size);
#pragma GCC unroll 8
            for (int q = 0; q < count; q++) mixed[q] = lanes_fma(lanes_all(weight[q][key]), v, mixed[q]);
        }
#pragma GCC unroll 8
        for (int q = 0; q < count; q++)
            lanes_store(partial_of(job, group, first_query + q, block) + part, mixed[q]);
    }
}

static void together(const Job *job, int64_t group, int64_t query) {
    const Attention *a = job->attention;
    int64_t per_group = a->heads / a->key_heads, size = a->size;
    int64_t blocks = min64(job->blocks, (a->start + row_of(a, query)) / KEY_BLOCK + 1);
    float most = -1e30f, sum = 0.0f, share[blocks];
    for (int64_t block = 0; block < blocks; block++) {
        float greatest = partial_of(job, group, query, block)[size];
        if (greatest > most) most = greatest;
    }
    for (int64_t block = 0; block < blocks; block++) {
        const float *partial = partial_of(job, group, query, block);
        float difference[LANES] = {partial[size] - most};
        lanes_store(difference, lanes_exp(lanes_load(difference)));
        share[block] = difference[0];
        sum += share[block] * partial[size + 1];
    }
    float *out = a->out + query / per_group * a->heads * size + (group * per_group + query % per_group) * size;
    for (int64_t part = 0; part < size; part += LANES) {
        lanes mixed = lanes_all(0.0f);
        for (int64_t block = 0; block < blocks; block++)
            mixed = lanes_fma(lanes_all(share[block]), lanes_load(partial_of(job, group, query, block) + part), mixed);
        lanes_store(out + part, lanes_div(mixed, lanes_all(sum)));
    }
}

/* The compiler makes `block_of` anew for each number of queries. */
#define REST(number) \
    case number: block_of(job, group, block, query, number < TOGETHER ? number : TOGETHER); break;

INLINE void block_of_tile(const Job *job, int64_t group, int64_t block, int64_t query, int64_t count) {
    switch (count) {
        REST(7) REST(6) REST(5) REST(4) REST(3) REST(2) REST(1)
        default: block_of(job, group, block, query, TOGETHER);
    }
}

static void tile(const void *context, int item) {
    const Job *job = context;
    const Attention *a = job->attention;
    int64_t queries = a->rows * (a->heads / a->key_heads), tiles = (queries + TOGETHER - 1) / TOGETHER;
    int64_t block = job->whole ? 0 : item % job->blocks;
    int64_t number = job->whole ? item : item / job->blocks;
    int64_t group = number / tiles, query = number % tiles * TOGETHER;
    int64_t count = min64(TOGETHER, queries - query);
    if (!job->whole) {
        block_of_tile(job, group, block, query, count);
        return;
    }
    int64_t blocks = (a->start + row_of(a, query + count - 1)) / KEY_BLOCK + 1;
    for (; block < blocks; block++) block_of_tile(job, group, block, query, count);
    for (int64_t i = 0; i < count; i++) together(job, group, query + i);
}

static void queries_together(const void *context, int item) {
    const Job *job = context;
    int64_t queries = job->attention->rows * (job->attention->heads / job->attention->key_heads);
    together(job, item / queries, item % queries);
}

void attend(const Attention *attention, int threads) {
    int64_t queries = attention->rows * (attention->heads / attention->key_heads);
    int64_t tiles = (queries + TOGETHER - 1) / TOGETHER * attention->key_heads;
    int64_t blocks = (attention->start + attention->rows - 1) / KEY_BLOCK + 1;
    Job job = {attention, blocks, tiles >= 4 * threads};
    if (job.whole) {
        in_parallel(tile, &job, (int)tiles, threads);
    } else {
        in_parallel(tile, &job, (int)(tiles * blocks), threads);
        in_parallel(queries_together, &job, (int)(queries * attention->key_heads), 1);
    }
}
