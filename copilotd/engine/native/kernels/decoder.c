#include "decoder.h"

#include <string.h>

#include "attention.h"
#include "lanes.h"
#include "threads.h"

/* ---- scratch ---- */

typedef struct {
    Activations of_hidden, of_heads, of_intermediate;
    float *qkv, *mixed, *gate_up, *partial;
} Scratch;

static void *taken(uint8_t **at, int64_t bytes) {
    uint8_t *from = *at;
    *at = from + (bytes + 63) / 64 * 64;
    return from;
}

/* Laid out from `memory` on, which need not be there; gives the bytes. */
static int64_t lay_out(const Decoder *d, int64_t rows, int64_t end, uint8_t *memory, Scratch *scratch) {
    uint8_t *at = memory;
    int64_t queries = d->heads * d->head_size;
    void *hidden = taken(&at, activations_bytes(rows, d->hidden));
    void *heads = taken(&at, activations_bytes(rows, queries));
    void *intermediate = taken(&at, activations_bytes(rows, d->intermediate));
    scratch->of_hidden = activations_at(hidden, rows, d->hidden);
    scratch->of_heads = activations_at(heads, rows, queries);
    scratch->of_intermediate = activations_at(intermediate, rows, d->intermediate);
    scratch->qkv = taken(&at, rows * (queries + 2 * d->key_heads * d->head_size) * 4);
    scratch->mixed = taken(&at, rows * queries * 4);
    scratch->gate_up = taken(&at, rows * 2 * d->intermediate * 4);
    scratch->partial = taken(&at, partial_floats(rows, end, d->heads, d->head_size) * 4);
    return at - memory;
}

int64_t scratch_bytes(const Decoder *decoder, int64_t rows, int64_t end) {
    Scratch scratch;
    return lay_out(decoder, rows, end, (uint8_t *)64, &scratch);
}

/* ---- what stands between the products, row by row ---- */

/* Below so many floats a thread is not worth waking. */
enum { WORTH_SHARING = 16384 };

typedef struct {
    const Decoder *decoder;
    const Cache *cache;
    int64_t number; /* of the layer */
    float *x;
    int64_t start;
    const float *weight; /* of the norm */
    Scratch scratch;
} Work;

/* RMSNorm (Zhang and Sennrich 2019), and the row as int8. */
static void normed(const void *context, int row) {
    const Work *work = context;
    int64_t hidden = work->decoder->hidden;
    const float *x = work->x + row * hidden;
    lanes squares = lanes_all(0.0f);
    for (int64_t i = 0; i < hidden; i += LANES) squares = lanes_fma(lanes_load(x + i), lanes_load(x + i), squares);
    float mean = lanes_sum(squares) / (float)hidden + work->decoder->epsilon;
    lanes scale = lanes_all(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean))));
    for (int64_t block = 0; block < work->scratch.of_hidden.blocks; block++) {
        float part[BLOCK];
        int64_t first = block * BLOCK, count = hidden - first < BLOCK ? hidden - first : BLOCK;
        for (int64_t i = 0; i < count; i += LANES) {
            lanes scaled = lanes_mul(lanes_load(x + first + i), scale);
            lanes_store(part + i, lanes_mul(scaled, lanes_load(work->weight + first + i)));
        }
        quantise_block(&work->scratch.of_hidden, row, block, part, count);
    }
}

static void turn(float *head, const float *cosine, const float *sine, int64_t half, float scale) {
    for (int64_t i = 0; i < half; i++) {
        float first = head[i], second = head[half + i];
        head[i] = (first * cosine[i] - second * sine[i]) * scale;
        head[half + i] = (second * cosine[i] + first * sine[i]) * scale;
    }
}

/* Queries and keys of a row are turned, keys and values written into the cache. */
static void placed(const void *context, int row) {
    const Work *work = context;
    const Decoder *d = work->decoder;
    int64_t size = d->head_size, position = work->start + row, half = size / 2;
    float *qkv = work->scratch.qkv + row * (d->heads + 2 * d->key_heads) * size;
    const float *cosine = d->cosine + position * half, *sine = d->sine + position * half;
    float scale = 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss((float)size)));
    for (int64_t head = 0; head < d->heads; head++) turn(qkv + head * size, cosine, sine, half, scale);
    for (int64_t head = 0; head < d->key_heads; head++) {
        float *key = qkv + (d->heads + head) * size, *value = key + d->key_heads * size;
        turn(key, cosine, sine, half, 1.0f);
        int64_t first = (work->number * d->key_heads + head) * work->cache->rows;
        uint16_t *keys = work->cache->keys + (first + position / LANES * LANES) * size + position % LANES;
        uint16_t *values = work->cache->values + (first + position) * size;
        for (int64_t i = 0; i < size; i += LANES) {
            uint16_t halves[LANES];
            lanes_store_half(halves, lanes_load(key + i));
            for (int64_t j = 0; j < LANES; j++) keys[(i + j) * LANES] = halves[j];
            lanes_store_half(values + i, lanes_load(value + i));
        }
    }
}

static void mixed(const void *context, int row) {
    const Work *work = context;
    int64_t inputs = work->decoder->heads * work->decoder->head_size;
    quantise_row(&work->scratch.of_heads, row, work->scratch.mixed + row * inputs, inputs);
}

/* silu(gate) · up */
static void gated(const void *context, int row) {
    const Work *work = context;
    int64_t inputs = work->decoder->intermediate;
    float *gate = work->scratch.gate_up + row * 2 * inputs;
    const float *up = gate + inputs;
    for (int64_t i = 0; i < inputs; i += LANES) {
        lanes g = lanes_load(gate + i);
        lanes below = lanes_add(lanes_all(1.0f), lanes_exp(lanes_sub(lanes_all(0.0f), g)));
        lanes_store(gate + i, lanes_mul(lanes_div(g, below), lanes_load(up + i)));
    }
    quantise_row(&work->scratch.of_intermediate, row, gate, inputs);
}

static void by_row(Task task, const Work *work, int64_t rows, int64_t floats, int64_t threads) {
    in_parallel(task, work, (int)rows, rows * floats < WORTH_SHARING ? 1 : (int)threads);
}

/* ---- the step ---- */

void step(const Decoder *d, const Cache *cache, float *x, int64_t rows, int64_t start, float *logits, int64_t asked,
          int64_t stride, void *memory, int64_t threads) {
    Work work = {.decoder = d, .cache = cache, .x = x, .start = start};
    lay_out(d, rows, start + rows, memory, &work.scratch);
    const Scratch *s = &work.scratch;
    int64_t queries = d->heads * d->head_size, of_keys = d->key_heads * d->head_size, cells = of_keys * cache->rows;
    int width = (int)threads;
    for (int64_t number = 0; number < d->layers; number++) {
        const Layer *layer = d->layer + number;
        work.number = number;
        work.weight = layer->attention_norm;
        by_row(normed, &work, rows, d->hidden, threads);
        multiply(&layer->qkv, &s->of_hidden, rows, layer->qkv_bias, 0, s->qkv, queries + 2 * of_keys, width);
        by_row(placed, &work, rows, queries + 2 * of_keys, threads);
        Attention attention = {
            .queries = s->qkv,
            .query_stride = queries + 2 * of_keys,
            .keys = cache->keys + number * cells,
            .values = cache->values + number * cells,
            .cache_rows = cache->rows,
            .rows = rows,
            .start = start,
            .window = layer->window,
            .heads = d->heads,
            .key_heads = d->key_heads,
            .size = d->head_size,
            .partial = s->partial,
            .out = s->mixed,
        };
        attend(&attention, width);
        by_row(mixed, &work, rows, queries, threads);
        multiply(&layer->output, &s->of_heads, rows, NULL, 1, x, d->hidden, width);
        work.weight = layer->mlp_norm;
        by_row(normed, &work, rows, d->hidden, threads);
        multiply(&layer->gate_up, &s->of_hidden, rows, NULL, 0, s->gate_up, 2 * d->intermediate, width);
        by_row(gated, &work, rows, d->intermediate, threads);
        multiply(&layer->down, &s->of_intermediate, rows, NULL, 1, x, d->hidden, width);
    }
    if (asked == 0) return;
    work.weight = d->norm;
    work.x = x + (rows - asked) * d->hidden;
    by_row(normed, &work, asked, d->hidden, threads);
    multiply(&d->head, &s->of_hidden, asked, NULL, 0, logits, stride, width);
}
