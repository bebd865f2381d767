/* The widest registers there are: with AVX-512 VNNI one holds 16 floats, or what 16 outputs by four inputs of int8
 * take; else it takes two. What a lane holds is computed alike, so both give the same bits. */
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define WIDEST_512

enum { PARTS = 1 };
typedef __m512i ints;
typedef __m512 floats;

INLINE ints ints_all(int32_t value) { return _mm512_set1_epi32(value); }
INLINE ints ints_add(ints a, ints b) { return _mm512_add_epi32(a, b); }
INLINE ints ints_up(ints a, int bits) { return _mm512_slli_epi32(a, (unsigned)bits); }
INLINE ints ints_down(ints a, int bits) { return _mm512_srli_epi32(a, (unsigned)bits); }
INLINE ints ints_of_floats(floats a) { return _mm512_cvtps_epi32(a); }
INLINE ints ints_as(floats a) { return _mm512_castps_si512(a); }

INLINE ints bytes_load(const void *from) { return _mm512_loadu_si512(from); }
INLINE void bytes_store(void *to, ints a) { _mm512_storeu_si512(to, a); }
INLINE ints bytes_all(int value) { return _mm512_set1_epi8((char)value); }
INLINE ints bytes_table(__m128i sixteen) { return _mm512_broadcast_i32x4(sixteen); }
INLINE ints bytes_look_up(ints table, ints at) { return _mm512_shuffle_epi8(table, at); }
INLINE ints bytes_and(ints a, ints b) { return _mm512_and_si512(a, b); }
INLINE ints bytes_xor(ints a, ints b) { return _mm512_xor_si512(a, b); }
INLINE void bytes_store_of_ints(int8_t *to, ints a) { _mm_storeu_si128((__m128i *)to, _mm512_cvtsepi32_epi8(a)); }

INLINE floats floats_all(float value) { return _mm512_set1_ps(value); }
INLINE floats floats_load(const float *from) { return _mm512_loadu_ps(from); }
INLINE void floats_store(float *to, floats a) { _mm512_storeu_ps(to, a); }
INLINE floats floats_of_ints(ints a) { return _mm512_cvtepi32_ps(a); }
INLINE floats floats_as(ints a) { return _mm512_castsi512_ps(a); }
INLINE floats floats_of_halves(const void *from) { return _mm512_cvtph_ps(_mm256_loadu_si256(from)); }
INLINE void halves_store(void *to, floats a) {
    _mm256_storeu_si256(to, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
INLINE floats floats_add(floats a, floats b) { return _mm512_add_ps(a, b); }
INLINE floats floats_sub(floats a, floats b) { return _mm512_sub_ps(a, b); }
INLINE floats floats_mul(floats a, floats b) { return _mm512_mul_ps(a, b); }
INLINE floats floats_div(floats a, floats b) { return _mm512_div_ps(a, b); }
INLINE floats floats_min(floats a, floats b) { return _mm512_min_ps(a, b); }
INLINE floats floats_max(floats a, floats b) { return _mm512_max_ps(a, b); }
INLINE floats floats_fma(floats a, floats b, floats c) { return _mm512_fmadd_ps(a, b, c); }
INLINE floats floats_without_sign(floats a) { return _mm512_abs_ps(a); }
INLINE floats floats_rounded(floats a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a where `at` is at least `least`, else 0 */
INLINE floats floats_from(floats least, floats at, floats a) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(at, least, _CMP_GE_OQ), a);
}
INLINE __m256 floats_lower(const floats *parts) { return _mm512_castps512_ps256(parts[0]); }
INLINE __m256 floats_upper(const floats *parts) { return _mm512_extractf32x8_ps(parts[0], 1); }

#else

enum { PARTS = 2 };
typedef __m256i ints;
typedef __m256 floats;

INLINE ints ints_all(int32_t value) { return _mm256_set1_epi32(value); }
INLINE ints ints_add(ints a, ints b) { return _mm256_add_epi32(a, b); }
INLINE ints ints_up(ints a, int bits) { return _mm256_slli_epi32(a, bits); }
INLINE ints ints_down(ints a, int bits) { return _mm256_srli_epi32(a, bits); }
INLINE ints ints_of_floats(floats a) { return _mm256_cvtps_epi32(a); }
INLINE ints ints_as(floats a) { return _mm256_castps_si256(a); }

INLINE ints bytes_load(const void *from) { return _mm256_loadu_si256(from); }
INLINE void bytes_store(void *to, ints a) { _mm256_storeu_si256(to, a); }
INLINE ints bytes_all(int value) { return _mm256_set1_epi8((char)value); }
INLINE ints bytes_table(__m128i sixteen) { return _mm256_broadcastsi128_si256(sixteen); }
INLINE ints bytes_look_up(ints table, ints at) { return _mm256_shuffle_epi8(table, at); }
INLINE ints bytes_and(ints a, ints b) { return _mm256_and_si256(a, b); }
INLINE ints bytes_xor(ints a, ints b) { return _mm256_xor_si256(a, b); }
INLINE void bytes_store_of_ints(int8_t *to, ints a) {
    __m128i pairs = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((__m128i *)to, _mm_packs_epi16(pairs, pairs));
}

INLINE floats floats_all(float value) { return _mm256_set1_ps(value); }
INLINE floats floats_load(const float *from) { return _mm256_loadu_ps(from); }
INLINE void floats_store(float *to, floats a) { _mm256_storeu_ps(to, a); }
INLINE floats floats_of_ints(ints a) { return _mm256_cvtepi32_ps(a); }
INLINE floats floats_as(ints a) { return _mm256_castsi256_ps(a); }
INLINE floats floats_of_halves(const void *from) { return _mm256_cvtph_ps(_mm_loadu_si128(from)); }
INLINE void halves_store(void *to, floats a) { _mm_storeu_si128(to, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)); }
INLINE floats floats_add(floats a, floats b) { return _mm256_add_ps(a, b); }
INLINE floats floats_sub(floats a, floats b) { return _mm256_sub_ps(a, b); }
INLINE floats floats_mul(floats a, floats b) { return _mm256_mul_ps(a, b); }
INLINE floats floats_div(floats a, floats b) { return _mm256_div_ps(a, b); }
INLINE floats floats_min(floats a, floats b) { return _mm256_min_ps(a, b); }
INLINE floats floats_max(floats a, floats b) { return _mm256_max_ps(a, b); }
INLINE floats floats_fma(floats a, floats b, floats c) { return _mm256_fmadd_ps(a, b, c); }
INLINE floats floats_without_sign(floats a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE floats floats_rounded(floats a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* a where `at` is at least `least`, else 0 */
INLINE floats floats_from(floats least, floats at, floats a) {
    return _mm256_and_ps(a, _mm256_cmp_ps(at, least, _CMP_GE_OQ));
}
INLINE __m256 floats_lower(const floats *parts) { return parts[0]; }
INLINE __m256 floats_upper(const floats *parts) { return parts[1]; }

#endif

enum { PART = 16 / PARTS }; /* floats, or groups of four bytes, in one register */

/* acc + Σ a·b over each four neighbours; a unsigned, b signed. Without VNNI |a·b + a'·b'| must stay below 2^15. */
INLINE ints dot4(ints acc, ints a, ints b) {
#ifdef WIDEST_512
    return _mm512_dpbusd_epi32(acc, a, b);
#elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(acc, a, b);
#else
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
#endif
}

/* The same of signed a that went through `raised`, where INT8_RAISED times the sum of b is to be taken off. */
#if defined(WIDEST_512) || defined(__AVXVNNI__)
enum { INT8_RAISED = 128 };
INLINE ints raised(ints a) { return bytes_xor(a, bytes_all(0x80)); }
INLINE ints dot4_of_raised(ints acc, ints a, ints b) { return dot4(acc, a, b); }
#else
enum { INT8_RAISED = 0 };
INLINE ints raised(ints a) { return a; }
INLINE ints dot4_of_raised(ints acc, ints a, ints b) {
    return dot4(acc, _mm256_abs_epi8(a), _mm256_sign_epi8(b, a));
}
#endif
