"""Training in small: a toy corpus, a toy model, a few steps."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pair
import pytest
import torch
from pair import distillation, export, vocabulary
from pair.corpus import Document
from pair.model import HeadLoss, KeysValues, Qwen2, Shape
from pair.muon import orthogonalised
from pair.recipe import Recipe, Rows, Schedule, Stage
from pair.rows import RowSampler
from pair.training import EMBEDDING, Run, next_token_loss
from tokenizers import Tokenizer

ENTRIES = 400
TEXT = "".join(
    f"def area_{i}(width, height):\n    if width < {i}:\n        return 0\n    return width * height\n\n\n"
    for i in range(40)
)
SHAPE = Shape(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=32, ffn=96, vocabulary=ENTRIES)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return vocabulary.train([TEXT], ENTRIES)


@pytest.fixture(scope="module")
def sampler(tokenizer: Tokenizer) -> RowSampler:
    documents = [Document(f"pkg{i % 2}", f"src/m{i}.py", "python", TEXT) for i in range(4)]
    return RowSampler(documents, {"python": 0.7, "sql": 0.3}, Rows(fim=0.6, repository=0.2), tokenizer)


def schedule(**changes: object) -> Schedule:
    given: dict[str, object] = {
        "tokens": 100_000,
        "warmup": 2,
        "decay": 0.3,
        "stages": [Stage(start=0.0, row=128, batch=512)],
        "muon_lr": 0.02,
        "adam_lr": 0.01,
    }
    return Schedule(**(given | changes))  # type: ignore[arg-type]


def test_ten_steps_lower_the_loss(sampler: RowSampler, tmp_path: Path) -> None:
    run = Run(tmp_path, SHAPE, schedule(), seed=1)
    losses = [
        run.advance(lambda m, step, stage: next_token_loss(m, sampler.batch(1, step, stage)))
        for _ in range(10)
    ]
    assert losses[-1] < 0.8 * losses[0]


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(sampler: RowSampler, tmp_path: Path) -> None:
    def loss(model: Qwen2, step: int, stage: Stage) -> torch.Tensor:
        return next_token_loss(model, sampler.batch(1, step, stage))

    whole = Run(tmp_path / "whole", SHAPE, schedule(), seed=1)
    for _ in range(4):
        whole.advance(loss)
    first = Run(tmp_path / "parts", SHAPE, schedule(), seed=1)
    for _ in range(2):
        first.advance(loss)
    first.save()
    second = Run(tmp_path / "parts", SHAPE, schedule(), seed=1)
    assert (second.step, second.seen) == (2, 1024)
    for _ in range(2):
        second.advance(loss)
    for name, master in whole.masters.items():
        assert torch.equal(master, second.masters[name]), name


def test_rates_warm_up_stay_and_go_down_to_nothing() -> None:
    stages = [Stage(start=0.0, row=128, batch=512), Stage(start=0.5, row=256, batch=1024)]
    plan = schedule(warmup=10, stages=stages)
    assert plan.rate(0, 0) == pytest.approx(0.1)
    assert plan.rate(50, 50_000) == 1.0
    assert plan.rate(900, 85_000) == pytest.approx(0.5)
    assert plan.rate(999, 100_000) == 0.0
    assert [plan.stage(49_999), plan.stage(50_000)] == stages


def test_the_sliced_head_has_the_loss_and_gradients_of_the_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeadLoss, "SLICE", 5)
    torch.manual_seed(0)
    hidden, head = torch.randn(12, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True)
    targets = torch.randint(0, 30, (12,))
    sliced = torch.autograd.grad(loss := HeadLoss.apply(hidden, head, targets), (hidden, head))
    whole = torch.nn.functional.cross_entropy(hidden @ head.T, targets)
    assert loss.item() == pytest.approx(whole.item(), abs=1e-5)
    for ours, theirs in zip(sliced, torch.autograd.grad(whole, (hidden, head)), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_muon_orthogonalises() -> None:
    torch.manual_seed(0)
    for shape in ((32, 64), (64, 32)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)).float())
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_generating_with_a_cache_writes_what_whole_forwards_write() -> None:
    torch.manual_seed(0)
    model = Qwen2(SHAPE)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    ids = torch.randint(0, ENTRIES, (3, 9))
    with torch.no_grad():
        expected = ids
        for _ in range(6):
            best = (model(expected)[:, -1] @ model.head.T).argmax(-1, keepdim=True)
            expected = torch.cat([expected, best], 1)
        assert torch.equal(distillation.written(model, ids, 6, temperature=0.0), expected)
        past = [KeysValues() for _ in range(SHAPE.layers)]
        model(ids[:, :5], past)
        assert past[0].length == 5


def test_the_draft_begins_as_layers_of_the_target_and_learns_its_law(
    sampler: RowSampler, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    teacher = Run(tmp_path / "target", SHAPE, schedule(), seed=1)
    for _ in range(15):
        teacher.advance(lambda m, step, stage: next_token_loss(m, sampler.batch(1, step, stage)))
    small = msgspec.structs.replace(SHAPE, layers=1)
    recipe = Recipe(
        seed=1,
        shares={"python": 1.0},
        tokenizer_characters=0,
        rows=Rows(fim=0.6, repository=0.2),
        target=SHAPE,
        draft=small,
        target_schedule=schedule(),
        draft_schedule=schedule(adam_lr=0.001),
        draft_layers=[1],
        own_share=0.5,
        own_rows=64,
        own_tokens=24,
    )
    vocabulary.save(tokenizer, tmp_path / "tokenizer")
    export.save(tmp_path / "export", SHAPE, teacher.masters, tmp_path / "tokenizer")
    beginning = distillation.beginning(tmp_path / "export", recipe.draft_layers)
    mine, its = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"
    assert torch.equal(beginning[mine], teacher.masters[its].bfloat16().float())
    run = Run(tmp_path / "draft", small, recipe.draft_schedule, 1, beginning)
    loss = distillation.Lessons(tmp_path / "export", sampler, recipe, tmp_path / "draft")

    def apart() -> float:
        """How far the two laws are from each other, in nats a token, on rows that are not learnt from."""
        stage = recipe.draft_schedule.stages[0]
        with torch.no_grad():
            return float(loss(run.model, 1000, stage) - loss(teacher.model, 1000, stage))

    before = apart()
    for _ in range(20):
        run.advance(loss)
    assert apart() < 0.5 * before
    assert torch.equal(run.masters[EMBEDDING], beginning[EMBEDDING])
    own = torch.load(tmp_path / "draft" / "own.pt", weights_only=True)
    assert own.shape == (64, 128)
    assert own.dtype == torch.int16


def test_the_draft_is_asked_after_every_middle_and_now_and_then_before(
    sampler: RowSampler, tokenizer: Tokenizer
) -> None:
    prefix, suffix, middle, end = (
        tokenizer.token_to_id(f"<|{name}|>")
        for name in ("fim_prefix", "fim_suffix", "fim_middle", "endoftext")
    )
    row = [prefix, 1, 2, 3, 4, suffix, 5, 6, middle, 7, 8, 9, end, prefix, 1, suffix, 2, middle, 3]
    asked = distillation.telling(torch.tensor([row]), prefix, middle).flatten().tolist()
    assert [i for i, here in enumerate(asked) if here] == [0, 4, 8, 9, 10, 11, 12, 16, 17, 18]


def test_transformers_reads_an_export_and_computes_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = Qwen2(SHAPE)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    vocabulary.save(tokenizer, tmp_path / "tokenizer")
    export.save(tmp_path / "model", SHAPE, dict(model.named_parameters()), tmp_path / "tokenizer")
    ours = export.load(tmp_path / "model").float()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    ids = torch.randint(0, ENTRIES, (2, 300))
    with torch.no_grad():
        expected = theirs(ids).logits
        assert torch.allclose(ours(ids) @ ours.head.T, expected, atol=2e-3 * expected.abs().max())
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert loaded(TEXT[:500]).input_ids == tokenizer.encode(TEXT[:500]).ids
    end = json.loads((tmp_path / "model" / "config.json").read_text())["eos_token_id"]
    assert tokenizer.id_to_token(end) == "<|endoftext|>"


def test_int8_by_row_is_near_the_weights_and_read_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Qwen2(SHAPE)
    vocabulary.save(tokenizer, tmp_path / "tokenizer")
    tensors = dict(model.named_parameters())
    tensors["model.layers.0.mlp.up_proj.weight"].data[3] *= 100  # its row alone gets coarser
    export.save(tmp_path / "model", SHAPE, tensors, tmp_path / "tokenizer", int8=True)
    for name, tensor in export.load(tmp_path / "model").named_parameters():
        most = tensor.abs().amax(-1, keepdim=True)
        assert torch.all((tensor - tensors[name]).abs() <= most / 127), name


@pytest.mark.parametrize("changes", [{"head_dim": 16}, {"kv_heads": 3}, {"hidden": 96}, {"ffn": 5000}])
def test_shapes_that_cannot_be_widened_are_refused(changes: dict[str, int]) -> None:
    given = {"hidden": 64, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 32, "ffn": 96, "vocabulary": 9}
    with pytest.raises(ValueError, match=r"head_dim|hidden|large"):
        Shape(**(given | changes))


def test_the_recipe_is_whole() -> None:
    recipe = Recipe.read(Path(pair.__file__).parent.with_name("recipe.toml"))
    assert sum(recipe.shares.values()) == pytest.approx(1)
    assert recipe.target.vocabulary == recipe.draft.vocabulary
    for plan in (recipe.target_schedule, recipe.draft_schedule):
        starts = [stage.start for stage in plan.stages]
        assert starts == sorted(starts)
        assert starts[0] == 0
