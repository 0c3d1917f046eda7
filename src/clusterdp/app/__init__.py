"""`clusterdp app`: both halves in a browser, for people who do not program. The top of the package.

The app is a thin layer: every number comes from the functions that Python and the command line
call, and each page shows how to do the same there. Nothing leaves the machine. `guard.py` says who
may ask for a page, `server.py` starts and stops, `pages.py` renders.

Why Starlette and uvicorn, with forms of plain HTML: they are 7 packages and 6 MB, and load in 0.3
to 0.6 seconds. Shiny for Python is 31 packages and 95 MB, and loads in 1.2 to 1.8 seconds (both
measured in fresh environments). Forms keep what was typed, work by keyboard and with screen
readers, and each of their requests can be checked. Our own sheet, charts and documents show what
was found. A page of Shiny needs an open WebSocket and inline scripts, which the policy of our pages
forbids.
"""
