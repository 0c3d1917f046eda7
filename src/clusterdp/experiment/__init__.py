"""What is declared and public about an experiment.

The values an outcome can take, and its clusters, arms and cell sizes.
"""
