"""Widened models compute what the small one does; transformers is the judge."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from faithful import proof
from faithful.embedded import is_fresh
from faithful.shapes import QWEN, Dimensions
from faithful.widening import DoesNotFit, check, widen
from safetensors import safe_open

import copilotd.models
from copilotd.models.tokenizer import TokenizerVocabulary
from tests.support.toy_checkpoints import build, write_model

EMBEDDED = Path(copilotd.models.__file__).parent / "embedded"
NEVER = 5


def wide(**changes: object) -> Dimensions:
    given: dict[str, object] = {
        "hidden": 192, "layers": 4, "heads": 12, "key_heads": 4, "head_size": 64, "intermediate": 320,
        "vocabulary": 512, "tied": False,
    }  # fmt: skip
    return Dimensions(**(given | changes))  # type: ignore[arg-type]


def widened(tmp_path: Path, to: Dimensions, **keys: object) -> tuple[object, Path, Path]:
    model = build("qwen2", **keys)
    source = write_model(tmp_path / "small", model)
    into = tmp_path / "wide"
    widen(source, into, to, NEVER, torch.float32, lambda name, share: None)
    return model, source, into


def logits(model: object, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model(ids[None]).logits[0]  # type: ignore[operator, no-any-return]


@pytest.mark.parametrize(
    ("to", "keys"),
    [
        (wide(), {}),
        (wide(head_size=16, heads=4, key_heads=2), {}),
        (wide(tied=True), {"tie_word_embeddings": True}),
        (wide(), {"tie_word_embeddings": True}),
    ],
    ids=["everything wider", "heads as they are", "tied", "a head of its own"],
)
def test_the_logits_stay(tmp_path: Path, to: Dimensions, keys: dict[str, object]) -> None:
    from transformers import Qwen2ForCausalLM

    small, _, into = widened(tmp_path, to, **keys)
    large = Qwen2ForCausalLM.from_pretrained(into, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(0, 256, (200,), generator=torch.Generator().manual_seed(1))
    before, after = logits(small, ids), logits(large, ids)
    assert after.shape[1] == to.vocabulary
    assert (after[:, :288] - before).abs().max() < 2e-4 * before.std()
    assert torch.equal(before.argmax(1), after[:, :288].argmax(1))
    assert torch.allclose(after[:, 288:], before[:, NEVER, None].expand(-1, to.vocabulary - 288), atol=1e-2)


def test_it_is_no_file_of_zeros_and_has_the_shapes(tmp_path: Path) -> None:
    _, _, into = widened(tmp_path, wide())
    with safe_open(into / "model.safetensors", framework="pt") as weights:
        down = weights.get_tensor("model.layers.3.mlp.down_proj.weight")
        assert down.shape == (192, 320)
        assert (down == 0).float().mean() < 0.5
        assert weights.get_tensor("model.layers.0.self_attn.k_proj.weight").shape == (256, 192)


def test_in_shards_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, source, _ = widened(tmp_path, wide())
    monkeypatch.setattr("faithful.widening.SHARD_BYTES", 300_000)
    widen(source, tmp_path / "parts", wide(), NEVER, torch.float32, lambda name, share: None)
    assert len(list((tmp_path / "parts").glob("model-*-of-*.safetensors"))) > 2
    ids = list(range(40, 90))
    assert torch.equal(proof.logits(tmp_path / "wide", ids), proof.logits(tmp_path / "parts", ids))


def test_the_embedded_pair_on_its_own_kind_of_text(tmp_path: Path) -> None:
    """At a shape between its own and Qwen's, added ids among the candidates; then quantised."""
    to = Dimensions(
        hidden=384,
        layers=8,
        heads=14,
        key_heads=2,
        head_size=64,
        intermediate=1024,
        vocabulary=9000,
        tied=True,
    )
    source = EMBEDDED / "target"
    vocabulary = TokenizerVocabulary.from_folder(source)
    assert vocabulary.fim is not None
    into = tmp_path / "wide"
    widen(source, into, to, vocabulary.fim.prefix, torch.float32, lambda name, share: None)
    ids = vocabulary.encode(Path(__file__).read_text("utf-8"))[:160]
    found = proof.compare(source, into, ids)
    assert found.choices == 0
    assert found.largest < 1e-3 * found.spread
    before, after = (proof.logits(folder, ids, "int8") for folder in (source, into))
    same = (before.argmax(1) == after.argmax(1)).float().mean()
    assert same > 0.9


def test_what_does_not_fit_is_said() -> None:
    check(wide(), wide())
    for change, named in (
        ({"hidden": 100}, "hidden"),
        ({"head_size": 96}, "head_size"),
        ({"heads": 4}, "query heads"),
        ({"vocabulary": 100}, "vocabulary"),
    ):
        with pytest.raises(DoesNotFit, match=named):
            check(wide(), wide(**change))
    with pytest.raises(DoesNotFit, match="embedding"):
        check(wide(), wide(tied=True))


def test_the_shapes_are_qwens() -> None:
    billions = {name: round(shape.parameters / 1e9, 2) for name, shape in QWEN.items()}
    assert billions == {"0.5B": 0.49, "1.5B": 1.54, "7B": 7.62, "32B": 32.76}


def test_what_is_older_than_its_source_is_not_fresh(tmp_path: Path) -> None:
    source, made = tmp_path / "source", tmp_path / "made"
    for folder in (source, made):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"")
    assert is_fresh(made, source)
    os.utime(made / "model.safetensors", (1, 1))
    assert not is_fresh(made, source)
    assert not is_fresh(tmp_path / "missing", source)
