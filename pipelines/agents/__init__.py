"""Answers for agents: short, structured, with evidence; perfpipe itself calls no model.

The tools are thin layers over the code of the commands.  `tools` defines them, and `server` offers
them over the Model Context Protocol; only `server` imports the protocol's SDK.
"""
