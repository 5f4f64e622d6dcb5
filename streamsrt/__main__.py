"""``python -m streamsrt`` is the command ``streamsrt``."""

from streamsrt.cli import main

if __name__ == "__main__":
    main()
