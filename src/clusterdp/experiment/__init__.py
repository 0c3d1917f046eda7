"""What is declared and public about an experiment.

Its clusters, arms and cell sizes; its outcomes, the values they can take, the combinations that
exist, and what is to be measured of them. Read `declared.py`, then `categories.py`, then
`encoded_rows.py`.
"""
