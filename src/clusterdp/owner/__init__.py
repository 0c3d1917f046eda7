"""What the owner calls: plan, preview, publish, release, resume.

Options are checked here, once, whether they come from Python, the command line or a file. The
command line is a thin layer above.
"""
