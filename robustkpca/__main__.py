"""``python -m robustkpca ...`` is ``robustkpca ...``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interrupt is no fault of ours, also while modules are still imported."""
    try:
        from robustkpca.commands import main as run

        run()
    except KeyboardInterrupt:
        print("robustkpca: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
