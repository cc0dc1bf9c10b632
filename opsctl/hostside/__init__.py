"""The program that runs on the host: standard library only, Python 3.8 or newer.

It is sent over the connection (`opsctl.transport.bundle`), leaves no file of its own
behind, and speaks newline-delimited JSON (`server`). It imports nothing of the rest of
opsctl, so that it can be run and tested without SSH: `opsctl.transport.local`.
"""
