"""Where rows come from: files of any size, streams, and queries to databases."""
