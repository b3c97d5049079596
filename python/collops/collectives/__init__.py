"""The plain level: collectives on whole arrays, a file per collective."""
