"""The Spark engine: the same passes on a cluster. Rows never come to the driver."""
