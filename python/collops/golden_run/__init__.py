"""``collops golden run``: runs golden's cases and ATB's case files on several ranks."""
