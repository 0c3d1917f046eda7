"""Where the rows of the local engine come from: files of any size, and queries to databases."""
