"""systemd: unit files rendered here, and what a unit's properties mean."""
