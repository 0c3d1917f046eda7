"""What was asked for, and what is going to be published: values that are made once and passed on.

A `Request` is what an owner said, parsed. A `ReleaseSpec` is what follows from it and from the
public columns of a table: nothing in it is open.
"""
