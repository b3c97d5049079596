"""``python -m collops.cli``, where the script ``collops`` is not on the path."""

from collops.cli.main import main

raise SystemExit(main())
