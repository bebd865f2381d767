import sys

from copilotd.cli import main

sys.exit(main())
