"""Which files hold secrets: no completion in them, and their text goes nowhere."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from pathspec import GitIgnoreSpec

from copilotd.context.globs import compile_lines

_NAMES = """
.env
.env.*
.env-*
.env_*
*.env
*.env.local
.envrc
.dev.vars
.flaskenv
!.env.example
!.env.sample
!.env.template
.git/
.ssh/
.gnupg/
**/.docker/config.json
.dockercfg
**/.kube/config
**/gh/hosts.yml
kubeconfig
.netrc
_netrc
.npmrc
.yarnrc.yml
.pypirc
.pgpass
.my.cnf
.htpasswd
.git-credentials
.vault-token
.terraformrc
*.tfstate
*.tfstate.*
*.tfvars
id_rsa*
id_dsa*
id_ecdsa*
id_ed25519*
!id_*.pub
*.pem
*.key
*.p12
*.pfx
*.p8
*.jks
*.keystore
*.kdbx
*.gpg
*.asc
*.ovpn
*.ppk
credentials
!credentials/
credentials.json
credentials.toml
credentials.y*ml
application_default_credentials.json
*.tfrc.json
client_secret*.json
service-account*.json
service_account*.json
secret.json
secret.toml
secret.y*ml
secrets.json
secrets.toml
secrets.y*ml
secrets.properties
local.settings.json
"""

_FOLDERS = frozenset({".git", ".ssh", ".gnupg"})
"""A workspace that is or lies in one of these is secret whole."""

_MARKS = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36,}"
    r"|\bgithub_pat_[A-Za-z0-9_]{50,}"
    r"|\bglpat-[A-Za-z0-9_-]{20,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{20,}"
    r"|\bsk_live_[A-Za-z0-9]{20,}"
    r"|\bAIza[0-9A-Za-z_-]{35}\b"
    r"|\bnpm_[A-Za-z0-9]{36}\b"
    r"|\bpypi-[A-Za-z0-9_-]{50,}"
    r"|\bsk-(?:ant|proj|svcacct)-[A-Za-z0-9_-]{20,}"
    r"|\bhf_[A-Za-z0-9]{34}\b"
    r"|\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}\b"
    r"|^PuTTY-User-Key-File-\d"
    r"|_authToken\s*="
)


class Secrets:
    """The rule, with the globs (as in a .gitignore) that the user's own settings allow all the same."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        self._names = GitIgnoreSpec.from_lines(_NAMES.splitlines())
        self._allowed = compile_lines(allowed)

    def named(self, path: str, folder: str = "") -> bool:
        """Whether the name says so. `path` is relative to the workspace folder, "/" between parts."""
        secret = not _FOLDERS.isdisjoint(folder.split("/")) or self._names.match_file(path.lower())
        return secret and not self._allowed.match_file(path)

    def linked(self, path: str) -> bool:
        """Whether an absolute path is a link, or goes through one, to what has such a name. Looks at the disk."""
        real = os.path.realpath(path)
        folder, name = os.path.split(real)
        return real != path and self.named(name, folder)

    def marked(self, path: str, text: str) -> bool:
        """Whether the content says so: a private key, a well-known form of access token."""
        return _MARKS.search(text) is not None and not self._allowed.match_file(path)
