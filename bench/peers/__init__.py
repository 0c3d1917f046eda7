"""Other methods on the same data: `make bench-peers` writes docs/studies/peers.md."""
