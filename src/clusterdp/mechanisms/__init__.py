"""What is published, down to the integers.

The parts of a mechanism, the mechanism and its cost, and a catalogue of builders.
"""
