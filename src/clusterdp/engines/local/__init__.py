"""The local engine: streaming passes over files and frames on one machine, in bounded memory."""
