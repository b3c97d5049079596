"""``python -m collops``, as the command ``collops``."""

from collops.cli.main import main

raise SystemExit(main())
