"""``python -m fedmoments`` is the command ``fedmoments``."""

from fedmoments.cli import main

if __name__ == "__main__":
    main()
