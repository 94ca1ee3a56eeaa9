"""``python -m robustkpca ...`` is ``robustkpca ...``."""

from robustkpca.commands import main

if __name__ == "__main__":
    main()
