"""The packages the corpus is made of: fetched by name and version through the registries' own clients."""

from __future__ import annotations

import email
import json
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

PERMISSIVE = frozenset(
    "MIT BSD BSD-2-Clause BSD-3-Clause Apache-2.0 PSF-2.0 PostgreSQL public-domain 0BSD".split()
)

WHEEL_PLATFORMS = ("any", "manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")
DEB_SRC = """Types: deb-src
URIs: http://deb.debian.org/debian
Suites: {suite}
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


class LicenceError(Exception):
    """A package says it has another licence than the list says."""


class Package(Struct, frozen=True, kw_only=True):
    registry: Literal["pypi", "npm", "debian"]
    name: str
    version: str
    licence: str
    """an SPDX expression out of PERMISSIVE names"""
    held_out: bool = False
    sdist: bool = False
    """PyPI: the wheel lacks the files that are wanted"""
    only: str = ""
    """a pattern that a wanted file's path matches, from its start"""

    def matches(self, path: str) -> bool:
        return re.match(self.only, path) is not None

    def __post_init__(self) -> None:
        if not set(re.split(r" AND | OR ", self.licence)) <= PERMISSIVE:
            raise ValueError(f"{self.name}: {self.licence} is not on the list of permissive licences")


class Sources(Struct, frozen=True):
    debian_suite: str
    packages: list[Package]

    @classmethod
    def read(cls, path: Path) -> Sources:
        return msgspec.toml.decode(path.read_bytes(), type=cls)


def fetch(package: Package, folder: Path, debian_suite: str) -> list[Path]:
    """The package's archives in a folder of its own below `folder`; fetched once, licence checked each time."""
    place = folder / package.registry / package.name.replace("/", "-")
    finished = place / ".finished"
    if not finished.exists():
        place.mkdir(parents=True, exist_ok=True)
        if package.registry == "pypi":
            _pip(package, place)
        elif package.registry == "npm":
            what = f"{package.name}@{package.version}"
            _run(
                ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(place), what], place
            )
        else:
            _apt(package, place, folder / "apt", debian_suite)
        finished.touch()
    archives = sorted(a for a in place.iterdir() if a.suffix != ".dsc" and a.name != ".finished")
    stated = _stated_licence(package, archives)
    if not _agrees(package.licence, stated):
        raise LicenceError(
            f"{package.name} {package.version}: {package.licence} expected, it says {stated[:200]!r}"
        )
    return archives


def _pip(package: Package, place: Path) -> None:
    kind = ["--no-binary=:all:"] if package.sdist else ["--only-binary=:all:", "--python-version", "3.11"]
    platforms = [] if package.sdist else [f"--platform={platform}" for platform in WHEEL_PLATFORMS]
    what = f"{package.name}=={package.version}"
    _run(["pip", "download", "-q", "--no-deps", *kind, *platforms, what], place)


def _apt(package: Package, place: Path, apt: Path, suite: str) -> None:
    """`apt-get source` with a configuration of our own: the machine's sources need no deb-src line."""
    options = [
        f"-oDir::Etc::SourceParts={apt / 'sources'}",
        "-oDir::Etc::SourceList=/dev/null",
        f"-oDir::State::Lists={apt / 'lists'}",
        f"-oDir::Cache={apt / 'cache'}",
        "-oAPT::Sandbox::User=",
    ]
    updated = apt / ".updated"
    if not updated.exists():
        for part in ("sources", "lists/partial", "cache/archives/partial"):
            (apt / part).mkdir(parents=True, exist_ok=True)
        (apt / "sources" / "source.sources").write_text(DEB_SRC.format(suite=suite))
        _run(["apt-get", "-qq", *options, "update"], place)
        updated.touch()
    what = f"{package.name}={package.version}"
    _run(["apt-get", "-qq", *options, "source", "--download-only", what], place)


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _stated_licence(package: Package, archives: list[Path]) -> str:
    """What the package's own metadata says of its licence, in whatever words."""
    if package.registry == "npm":
        manifest = next(text for path, text in members(archives[0]) if path == "package.json")
        return str(json.loads(manifest)["license"])
    if package.registry == "debian":
        packaging = next(a for a in archives if ".debian.tar." in a.name)
        text = next(text for path, text in members(packaging, strip=0) if path == "debian/copyright")
        stanza = re.search(r"^Files: ?\*\n(?:.+\n)*?License: *(\S+)", text, re.MULTILINE)
        return stanza[1] if stanza else text[:8000]
    wanted = r"PKG-INFO" if package.sdist else r"[^/]+\.dist-info/METADATA"
    text = next(t for p, t in members(archives[0], strip=int(package.sdist)) if re.fullmatch(wanted, p))
    metadata = email.message_from_string(text)
    classifiers = [c for c in metadata.get_all("Classifier", []) if c.startswith("License")]
    return metadata["License-Expression"] or " ".join([metadata["License"] or "", *classifiers])


def _agrees(expected: str, stated: str) -> bool:
    if stated == expected:
        return True
    words = {
        "Apache-2.0": "apache",
        "PSF-2.0": r"python software foundation",
        "public-domain": "public.domain",
        "PostgreSQL": "postgresql",
    }
    alike = words.get(expected, expected.partition("-")[0])
    copyleft = re.search(r"\b(?:A?GPL|LGPL|MPL|EUPL)(?!-\s*compatible)", stated[:2000])
    return re.search(alike, stated, re.IGNORECASE) is not None and not copyleft


def members(archive: Path, strip: int | None = None) -> Iterator[tuple[str, str]]:
    """(path, text) of the UTF-8 files below 1 MB; `strip` leading folders are cut (tar: 1 if not said)."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                if entry.file_size < 1_000_000 and (text := _decoded(wheel.read(entry))) is not None:
                    yield entry.filename, text
        return
    cut = 1 if strip is None else strip
    with tarfile.open(archive) as tar:
        for member in tar:
            path = "/".join(member.name.removeprefix("./").split("/")[cut:])
            if member.isfile() and member.size < 1_000_000 and path:
                file = tar.extractfile(member)
                if file is not None and (text := _decoded(file.read())) is not None:
                    yield path, text


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
