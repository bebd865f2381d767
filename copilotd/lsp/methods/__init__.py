"""One module per LSP method: METHOD, the Params it reads, and `handle(ls, params)`.

A handler runs when its message is read. What it returns may be awaitable: that part is cancelled with the
request.
"""

from copilotd.lsp.methods import (
    did_change,
    did_change_configuration,
    did_change_workspace_folders,
    did_close,
    did_open,
    did_save,
    execute_command,
    exit,
    explain,
    initialize,
    initialized,
    inline_completion,
    shutdown,
    work_done_progress_cancel,
)

MODULES = (
    initialize,
    initialized,
    did_open,
    did_change,
    did_close,
    did_save,
    inline_completion,
    execute_command,
    explain,
    did_change_configuration,
    did_change_workspace_folders,
    work_done_progress_cancel,
    shutdown,
    exit,
)
