/* A decoder of the Qwen2 and Llama kind, its cache, and a step of it. Floats are float32. */
#pragma once

#include "product.h"

typedef struct {
    const float *attention_norm; /* [hidden] */
    Product qkv;                 /* hidden to queries, keys, values, in this order */
    const float *qkv_bias;       /* or NULL */
    Product output;
    const float *mlp_norm; /* [hidden] */
    Product gate_up;
    Product down;
    int64_t window; /* positions that one sees, itself included; 0: all */
} Layer;

typedef struct {
    int64_t hidden, intermediate, heads, key_heads, head_size, layers; /* multiples of 16, but heads and layers */
    const Layer *layer;
    const float *norm; /* [hidden] */
    Product head;
    const float *cosine, *sine; /* [positions][head_size / 2] (RoPE, Su et al. 2021) */
    float epsilon;
} Decoder;

typedef struct {
    uint16_t *keys;   /* halves [layers][key heads][rows / 16][head size][16] */
    uint16_t *values; /* halves [layers][key heads][rows][head size] */
    int64_t rows;     /* a multiple of 256 */
} Cache;

/* Bytes of scratch for a step of so many rows that ends at position `end`. */
int64_t scratch_bytes(const Decoder *decoder, int64_t rows, int64_t end);

/* x [rows][hidden], the embedded ids, becomes the residual stream after the last layer; rows start … of the cache
 * are written. The last `asked` rows' logits go to logits [asked][stride]. */
void step(const Decoder *decoder, const Cache *cache, float *x, int64_t rows, int64_t start, float *logits,
          int64_t asked, int64_t stride, void *scratch, int64_t threads);
