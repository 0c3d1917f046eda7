"""Methods of others beside ours, on the same data: `make bench-peers` writes docs/peers.md."""
