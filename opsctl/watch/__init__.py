"""`opsctl watch`: one or several hosts, live on a terminal; changes nothing on them.

`feed` follows a host and says what it hears (`heard`), `model` keeps what that amounts to,
`frame` lays it out as lines of text, and `screen` or `lines` shows those. All but `feed` and the
two last are pure.
"""
